"""A real Ceph from Debian's packages and a Loligo cluster of the same shape, on this machine."""

import fcntl
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What a real Ceph and its clients need.
PACKAGES = ["ceph-common", "ceph-mon", "ceph-mgr", "ceph-osd"]
CEPH = "Ceph"
LOLIGO = "Loligo"
OSDS = 3


def say(text):
    print(f"... {text}", file=sys.stderr, flush=True)


def build(profile):
    subprocess.run([str(ROOT / "tools" / "release"), "--quiet"] if profile == "release" else
                   ["cargo", "build", "--quiet", "--locked", "--profile", profile,
                    "--package", "loligo", "--manifest-path", str(ROOT / "Cargo.toml")], check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / ("debug" if profile == "dev" else profile) / "loligo"


def free_port(taken=set()):
    """A port that the kernel does not give away by itself, so that no client comes to hold it."""
    while True:
        port = random.randrange(10000, 30000)
        with socket.socket() as s:
            if port not in taken and s.connect_ex(("127.0.0.1", port)):
                taken.add(port)
                return port


def wait(what, seconds, look):
    end = time.monotonic() + seconds
    while not look():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.2)


def clear(folder):
    """Removes the folder of a development cluster that does not run. Nothing else is removed: names are mistyped."""
    folder = pathlib.Path(folder)
    if not folder.is_absolute():
        sys.exit(f"{folder} will be removed: name it by its whole path")
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        sys.exit(f"{folder} is not a folder; it is left as it is")
    if any(folder.iterdir()) and not (folder / "loligo-dev.json").is_file():
        sys.exit(f"{folder} is not empty, and holds no development cluster; it is left as it is")
    for held in folder.glob("*.pid"):
        with open(held) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                sys.exit(f"the cluster in {folder} runs ({held.name}); stop it with `loligo dev stop`")
    shutil.rmtree(folder)


class Cluster:
    """What both have in common: Ceph's clients, and OSDs that are processes."""

    def __init__(self, folder, osd_gib):
        self.folder = folder
        self.gib = osd_gib

    @property
    def env(self):
        return {**os.environ, "CEPH_CONF": str(self.folder / "ceph.conf"), "LC_ALL": "C"}

    def tool(self, *command, timeout=120):
        done = subprocess.run(command, env=self.env, capture_output=True, text=True,
                              timeout=timeout)
        if done.returncode:
            raise RuntimeError(f"{self.name}: `{' '.join(command)}`: {done.stdout}{done.stderr}")
        return done.stdout

    def ceph(self, *words):
        return self.tool("ceph", "--connect-timeout", "30", *words)

    def make_pool(self, pool, pgs, size, application):
        self.ceph("osd", "pool", "create", pool, str(pgs), str(pgs))
        self.ceph("osd", "pool", "set", pool, "size", str(size))
        self.ceph("osd", "pool", "application", "enable", pool, application)

    def wait_until_clean(self):
        def is_clean():
            status = json.loads(self.ceph("-s", "-f", "json"))["pgmap"]
            states = {s["state_name"]: s["count"] for s in status["pgs_by_state"]}
            return status["num_pgs"] > 0 and states == {"active+clean": status["num_pgs"]}
        wait(f"{self.name} active+clean", 120, is_clean)


class Ceph(Cluster):
    name = CEPH

    def __init__(self, folder, osd_gib, options={}):
        """`options`: more of its ceph.conf"""
        super().__init__(folder, osd_gib)
        self.options = options

    def start(self):
        folder, fsid = self.folder, str(uuid.uuid4())
        folder.mkdir(parents=True)
        v2, v1 = free_port(), free_port()
        addrs = f"[v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]"
        conf = {
            "fsid": fsid, "mon host": addrs, "public network": "127.0.0.0/8",
            "auth cluster required": "none", "auth service required": "none",
            "auth client required": "none",
            "mon data": f"{folder}/mon", "mgr data": f"{folder}/mgr",
            "osd data": f"{folder}/osd.$id", "log file": f"{folder}/$name.log",
            "admin socket": f"{folder}/$name.asok", "pid file": f"{folder}/$name.pid",
            "run dir": str(folder), "crash dir": f"{folder}/crash",
            "osd crush chooseleaf type": "0", "osd memory target": str(2 << 30),
            "mon allow pool delete": "true", "rbd cache": "false",
            "osd pool default pg autoscale mode": "off",
            # A disk that is full but for our files is no reason to stop.
            "mon data avail crit": "0", "mon data avail warn": "0",
            **self.options,
        }
        lines = "".join(f"{key} = {value}\n" for key, value in conf.items())
        client = "[client]\nadmin socket =\npid file =\nlog file =\n"
        (folder / "ceph.conf").write_text(f"[global]\n{lines}{client}")
        for sub in ("mon", "mgr", "crash"):
            (folder / sub).mkdir()
        monmap = str(folder / "monmap")
        self.tool("monmaptool", "--create", "--fsid", fsid, "--addv", "a", addrs, monmap)
        self.tool("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        self.tool("ceph-mon", "-i", "a")
        self.tool("ceph-mgr", "-i", "x")
        for osd in range(OSDS):
            self.start_osd(osd)

    def start_osd(self, osd):
        folder, own = self.folder / f"osd.{osd}", str(uuid.uuid4())
        folder.mkdir()
        with open(folder / "block", "wb") as block:
            # As many real blocks as Loligo's disks have.
            os.posix_fallocate(block.fileno(), 0, self.gib << 30)
        self.ceph("osd", "new", own, str(osd))
        self.tool("ceph-osd", "-i", str(osd), "--mkfs", "--osd-uuid", own)
        self.ceph("osd", "crush", "add", f"osd.{osd}", "1.0", f"host=h{osd}", "root=default")
        self.tool("ceph-osd", "-i", str(osd))

    def pid(self, daemon):
        return int((self.folder / f"{daemon}.pid").read_text())

    def osd_pids(self):
        return [self.pid(f"osd.{osd}") for osd in range(OSDS)]

    def stop(self):
        pids = []
        for path in self.folder.glob("*.pid"):
            # A daemon that failed leaves an empty one; a number may be another's by now: only what was started in
            # this folder counts.
            text = path.read_text().strip()
            pid = int(text) if text.isdigit() else None
            if pid and self.is_ours(pid):
                os.kill(pid, signal.SIGTERM)
                pids.append(pid)
        try:
            wait("Ceph stops", 30, lambda: not any(self.is_ours(pid) for pid in pids))
        except TimeoutError:
            for pid in filter(self.is_ours, pids):
                os.kill(pid, signal.SIGKILL)

    def is_ours(self, pid):
        try:
            env = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"CEPH_CONF={self.folder}/ceph.conf".encode() in env.split(b"\0")


class Loligo(Cluster):
    name = LOLIGO

    def __init__(self, folder, osd_gib, binary):
        super().__init__(folder, osd_gib)
        self.binary = str(binary)

    def dev(self, command, *more):
        done = subprocess.run([self.binary, "dev", command, "--dir", str(self.folder), "--json",
                               *more], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"Loligo: {done.stdout}{done.stderr}")
        return json.loads(done.stdout)

    def start(self):
        self.dev("start", "--osds", str(OSDS), "--port", str(free_port()),
                 "--osd-size", f"{self.gib}G")

    def osd_pids(self):
        daemons = self.dev("status")["daemons"]
        return [daemons[f"osd.{osd}"]["pid"] for osd in range(OSDS)]

    def stop(self):
        if self.folder.exists():
            self.dev("stop")
