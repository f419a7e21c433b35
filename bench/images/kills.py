"""Clients of both clusters killed in the middle of operations of many steps: what is left must be as
good to go on with as with Ceph.

Where exactly a client stops differs from one cluster to the other, so not single answers are compared:
of each operation it is said what must be possible afterwards. Where that fails with Loligo and never
with Ceph, it is shown.
"""

import random
import shlex
import subprocess
import time

from clusters import say
from .tool import Side, prepare

# What is there before, the command that is killed, what must be possible then. An end that is not 0
# ends the sequence; with `?` it may be either.
SCENARIOS = {
    "create": (
        [], "create P/a --size 64M --object-size 64K",
        ["? info P/a", "? rm P/a --no-progress", "create P/a --size 1M", "info P/a", "ls -l P"]),
    "create with a data pool": (
        [], "create P/a --size 64M --data-pool D",
        ["? rm P/a --no-progress", "create P/a --size 1M", "ls -l P"]),
    "clone": (
        ["create P/p --size 8M", "snap create P/p@s --no-progress", "snap protect P/p@s"],
        "clone P/p@s P/a",
        ["? info P/a", "? rm P/a --no-progress", "children P/p@s", "clone P/p@s P/a", "info P/a",
         "rm P/a --no-progress", "? snap unprotect P/p@s", "ls -l P"]),
    "clone of version 2": (
        ["create P/p --size 8M", "snap create P/p@s --no-progress"],
        "clone P/p@s P/a --rbd-default-clone-format 2",
        ["? info P/a", "? rm P/a --no-progress", "children P/p@s",
         "clone P/p@s P/a --rbd-default-clone-format 2", "rm P/a --no-progress",
         "? snap rm P/p@s --no-progress", "ls -l P"]),
    "flatten": (
        ["create P/p --size 16M --object-size 64K",
         "bench P/p --io-type write --io-size 64K --io-threads 4 --io-total 16M",
         "snap create P/p@s --no-progress", "snap protect P/p@s", "clone P/p@s P/a"],
        "flatten P/a --no-progress",
        ["info P/a", "? flatten P/a --no-progress", "object-map check P/a --no-progress",
         "rm P/a --no-progress", "snap unprotect P/p@s", "snap rm P/p@s --no-progress",
         "rm P/p --no-progress"]),
    "snap create": (
        ["create P/a --size 8M"], "snap create P/a@s --no-progress",
        ["snap ls P/a", "? snap create P/a@s --no-progress", "snap ls P/a",
         "snap rm P/a@s --no-progress", "rm P/a --no-progress"]),
    "snap rm": (
        ["create P/a --size 8M --object-size 64K", "snap create P/a@s --no-progress",
         "bench P/a --io-type write --io-size 64K --io-threads 4 --io-total 4M"],
        "snap rm P/a@s --no-progress",
        ["snap ls P/a", "? snap rm P/a@s --no-progress", "snap create P/a@s --no-progress",
         "snap purge P/a --no-progress", "rm P/a --no-progress"]),
    "snap rollback": (
        ["create P/a --size 16M --object-size 64K", "snap create P/a@s --no-progress",
         "bench P/a --io-type write --io-size 64K --io-threads 4 --io-total 16M"],
        "snap rollback P/a@s --no-progress",
        ["snap rollback P/a@s --no-progress", "object-map check P/a --no-progress",
         "snap purge P/a --no-progress", "rm P/a --no-progress"]),
    "shrink": (
        ["create P/a --size 16M --object-size 64K",
         "bench P/a --io-type write --io-size 64K --io-threads 4 --io-total 16M"],
        "resize P/a --size 64K --allow-shrink --no-progress",
        ["info P/a", "resize P/a --size 1M --allow-shrink --no-progress",
         "object-map check P/a --no-progress", "rm P/a --no-progress"]),
    "rm": (
        ["create P/a --size 16M --object-size 64K",
         "bench P/a --io-type write --io-size 64K --io-threads 4 --io-total 16M"],
        "rm P/a --no-progress",
        ["ls P", "? rm P/a --no-progress", "create P/a --size 1M", "rm P/a --no-progress",
         "trash purge P --no-progress", "trash ls --all P"]),
    "trash mv": (
        ["create P/a --size 8M"], "trash mv P/a",
        ["ls P", "trash ls P", "? trash mv P/a", "trash purge P --no-progress", "create P/a --size 1M",
         "ls -l P"]),
    "migration prepare": (
        ["create P/a --size 8M --object-size 64K",
         "bench P/a --io-type write --io-size 64K --io-threads 4 --io-total 4M"],
        "migration prepare P/a P/b",
        ["ls P", "? migration abort P/b --no-progress", "? info P/a", "? rm P/b --no-progress",
         "? rm P/a --no-progress"]),
    "migration execute": (
        ["create P/a --size 8M --object-size 64K",
         "bench P/a --io-type write --io-size 64K --io-threads 4 --io-total 8M",
         "migration prepare P/a P/b"],
        "migration execute P/b --no-progress",
        ["info P/b", "? migration execute P/b --no-progress", "migration commit P/b --no-progress",
         "object-map check P/b --no-progress", "rm P/b --no-progress"]),
    "migration commit": (
        ["create P/a --size 8M --object-size 64K",
         "bench P/a --io-type write --io-size 64K --io-threads 4 --io-total 8M",
         "migration prepare P/a P/b", "migration execute P/b --no-progress"],
        "migration commit P/b --no-progress",
        ["? migration commit P/b --no-progress", "info P/b", "rm P/b --no-progress", "ls P",
         "trash ls --all P"]),
    "deep copy": (
        ["create P/a --size 8M --object-size 64K", "snap create P/a@s --no-progress",
         "bench P/a --io-type write --io-size 64K --io-threads 4 --io-total 8M"],
        "deep copy P/a P/b --no-progress",
        ["? info P/b", "? snap purge P/b --no-progress", "? rm P/b --no-progress",
         "deep copy P/a P/b --no-progress", "snap purge P/b --no-progress", "rm P/b --no-progress"]),
    "group snapshot": (
        ["create P/a --size 8M", "create P/b --size 8M", "group create P/g",
         "group image add P/g P/a", "group image add P/g P/b"],
        "group snap create P/g@s",
        ["group snap ls P/g", "? group snap rm P/g@s", "group snap create P/g@t",
         "group snap rm P/g@t", "group image rm P/g P/a", "group rm P/g", "? rm P/a --no-progress",
         "? rm P/b --no-progress"]),
    "group image add": (
        ["create P/a --size 8M", "group create P/g"], "group image add P/g P/a",
        ["group image ls P/g", "? group image add P/g P/a", "group image rm P/g P/a", "group rm P/g",
         "rm P/a --no-progress"]),
    "rename": (
        ["create P/a --size 8M"], "rename P/a P/b",
        ["ls P", "? rename P/a P/b", "? rm P/b --no-progress", "? rm P/a --no-progress",
         "create P/a --size 1M"]),
}


class Killer:
    """Plays scenarios on one cluster."""

    def __init__(self, side):
        self.side = side
        self.takes = {}

    def play(self, name, far):
        """Kills the operation when this share of its time is over: what fails afterwards, and why."""
        before, operation, afterwards = SCENARIOS[name]
        self.side.clean()
        for line in before:
            self.must(line)
        if name not in self.takes:
            began = time.monotonic()
            self.must(operation)
            self.takes[name] = time.monotonic() - began
            return None
        self.kill(operation, far * self.takes[name])
        for line in afterwards:
            may_fail = line.startswith("? ")
            words = shlex.split(line.removeprefix("? "))
            answer = self.side.rbd(words)
            if "hangs" in answer:
                return f"{line} hangs", ""
            if answer["code"] != 0 and not may_fail:
                return f"{line} -> {answer['code']}", answer["err"][-300:]
        return None

    def must(self, line):
        answer = self.side.rbd(shlex.split(line))
        if answer.get("code") != 0:
            raise RuntimeError(f"{self.side.cluster.name}: rbd {line}: {answer}")

    def kill(self, line, seconds):
        words = [self.side.word(word) for word in shlex.split(line)]
        process = subprocess.Popen(["rbd", *words], env=self.side.cluster.env,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def compare(first, seeds, ours, theirs, work, only=None):
    sides = [Side(cluster, work / f"files-{cluster.name}") for cluster in (ours, theirs)]
    prepare(sides)
    killers = [Killer(side) for side in sides]
    worse = 0
    names = [name for name in SCENARIOS if not only or only in name]
    for name in names:
        ours_failed, theirs_failed = [failures(killer, name, first, seeds) for killer in killers]
        for what, (times, why) in sorted(ours_failed.items()):
            theirs_times, _ = theirs_failed.get(what, (0, ""))
            worse += theirs_times == 0
            print(f"== {name}: rbd {what}, {times} times of {seeds}, with Ceph {theirs_times} times\n"
                  f"  {why}", flush=True)
    print(f"{len(names)} operations killed {seeds} times each, {worse} failures Ceph does not have")
    return 1 if worse else 0


def failures(killer, name, first, seeds):
    """What failed afterwards: how often, and what was said."""
    failed = {}
    # The first run is not killed but timed.
    for seed in range(first - 1, first + seeds):
        if (found := killer.play(name, random.Random(seed).random())):
            what, why = found
            times, _ = failed.get(what, (0, ""))
            failed[what] = (times + 1, why)
    say(f"{killer.side.cluster.name}: {name}")
    return failed
