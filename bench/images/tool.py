"""Runs the command lines of the catalogue with `rbd` on both clusters and compares what is seen."""

import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import time

from clusters import say
from . import known
from .names import Names

CATALOGUE = pathlib.Path(__file__).with_name("catalogue.txt")
FORMATS = [["--format", "json"], ["--format", "xml", "--pretty-format"], ["--format", "nonsense"]]
PATIENCE = 60
POOL, DATA_POOL = "rbdtool", "rbdtool-data"
# librbd's log comes in the midst of what the tool says, at random.
NO_LOG = {"CEPH_ARGS": "--log_to_stderr=false --err_to_stderr=false"}
# How each command of `rbd help` is called wrongly, as well.
MALFORMED = [[], ["P/nothing"], ["P/a", "P/b", "P/c", "P/d", "P/e"], ["P/n/a"], ["nothing/a"], ["P/a@s"],
             ["P/a@nothing"], ["P/"], ["--nonsense"], ["P/a", "--size", "x"], ["--pool", "P"],
             ["--image", "a", "--pool", "nothing"]]
# These do not end by themselves, or mean this machine.
NOT_WRONGLY = {"watch", "perf image iostat", "perf image iotop", "device attach", "device detach",
               "device list", "device map", "device unmap", "map", "unmap", "showmapped", "bench"}


class Side:
    def __init__(self, cluster, folder):
        self.cluster, self.folder, self.names = cluster, folder, Names()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pass").write_text("secret")

    def run(self, *words):
        try:
            done = subprocess.run(words, env={**self.cluster.env, **NO_LOG}, capture_output=True,
                                  timeout=PATIENCE, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return {"hangs": PATIENCE}
        text = lambda raw: raw.decode("utf-8", "replace")
        return {"code": done.returncode, "out": text(done.stdout), "err": text(done.stderr)}

    def rbd(self, words):
        """What a command line does, without what differs from one cluster to another."""
        answer = self.run("rbd", *(self.word(word) for word in words))
        return {k: self.plain(v) if isinstance(v, str) else v for k, v in answer.items()}

    def word(self, word):
        word = re.sub(r"\bP\b(?=/|$)", POOL, word) if re.match(r"P(/|$)", word) else word
        word = re.sub(r"^D(?=/|$)", DATA_POOL, word)
        word = re.sub(r"(?<![\w/])F/", f"{self.folder}/", word)
        return re.sub(r"ID\((\w+)\)", lambda m: self.id_of(m.group(1)), word)

    def id_of(self, name):
        listed = self.run("rbd", "trash", "ls", "--all", POOL, "--format", "json")
        found = [i["id"] for i in json.loads(listed.get("out") or "[]") if i["name"] == name]
        return found[0] if found else "123abc"

    def plain(self, text):
        text = text.replace(str(self.folder), "F")
        # Progress; times as people write them; tables are as wide as ids and addresses.
        text = re.sub(r"[^\n]*\r", "", text)
        text = re.sub(r"[A-Z][a-z][a-z] [A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d \d{4}", "TIME", text)
        text = re.sub(r" +$", "", self.names.text(text), flags=re.M)
        return re.sub(r"[ -]{2,}", "  ", text)

    def clean(self):
        self.names = Names()
        for pool in (POOL, DATA_POOL):
            self.run("rados", "-p", pool, "purge", pool, "--yes-i-really-really-mean-it")
            listed = self.run("rados", "-p", pool, "--all", "ls", "--format", "json")
            for found in json.loads(listed.get("out") or "[]"):
                if found["namespace"]:
                    self.run("rados", "-p", pool, "-N", found["namespace"], "rm", found["name"])


def prepare(sides):
    """Pools that are there once, however often one asks."""
    for side in sides:
        there = side.cluster.ceph("osd", "pool", "ls").split()
        for pool in {POOL, DATA_POOL} - {*there}:
            side.cluster.make_pool(pool, 8, 3, "rbd")
    for side in sides:
        side.cluster.wait_until_clean()


def lines():
    """(section, command line, whether its output counts), one after the other."""
    section = None
    for line in CATALOGUE.read_text().splitlines():
        if line.startswith("== "):
            section = line[3:]
        elif line and not line.startswith("#"):
            mark, rest = (line[0], line[2:]) if line[:2] in ("+ ", "! ") else ("", line)
            words = shlex.split(rest)
            yield section, words, mark != "!"
            if mark == "+":
                for more in FORMATS:
                    yield section, words + more, True


def malformed(side):
    helped = side.run("rbd", "help")["out"]
    commands = re.findall(r"^ {4}(\S.*?)(?: {2,}|$)", helped.split("Optional arguments")[0], re.M)
    for command in commands[1:]:
        command = re.sub(r" \(.*\)$", "", command)
        if command not in NOT_WRONGLY:
            for more in MALFORMED:
                yield "wrongly called", command.split() + more, True


def compare(ours, theirs, work, only=None):
    sides = [Side(cluster, work / f"files-{cluster.name}") for cluster in (ours, theirs)]
    prepare(sides)
    threads = concurrent.futures.ThreadPoolExecutor(2)
    each = lambda f: list(threads.map(f, sides))
    began, asked, differ, before = time.monotonic(), 0, 0, None
    for section, words, counts in [*lines(), *malformed(sides[1])]:
        if only and only not in section:
            continue
        if section != before:
            each(Side.clean)
            before = section
        a, b = each(lambda side: side.rbd(words))
        asked += 1
        if not counts:
            a.pop("out", None), b.pop("out", None)
        if a == b or known.tool_differs(words, a, b):
            continue
        differ += 1
        print(f"== {section}: rbd {shlex.join(words)}")
        for key in sorted({*a, *b}):
            if a.get(key) != b.get(key):
                print(f"  {key}: ours   {a.get(key)!r}\n  {' ' * len(key)}  theirs {b.get(key)!r}")
        print(end="", flush=True)
    print(f"{asked} command lines of rbd, {differ} differences")
    say(f"{time.monotonic() - began:.0f} s")
    return 1 if differ else 0
