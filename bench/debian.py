"""Debian's packages that a bench needs, installed as `./check` and `./start` do it (tools/debian.sh)."""

import pathlib
import subprocess
import sys

TOOLS = pathlib.Path(__file__).resolve().parent.parent / "tools"


def need_packages(purpose, *packages):
    """Installs what is missing, with a line that says so; ends the program where that fails."""
    script = '. "$1/debian.sh"; shift; need_packages "$@"'
    done = subprocess.run(["bash", "-c", script, "install", str(TOOLS), purpose, *packages])
    if done.returncode:
        sys.exit(done.returncode)
