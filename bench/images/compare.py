"""Plays the same histories on both clusters and says where answers differ."""

import concurrent.futures
import json
import pathlib
import re
import select
import subprocess
import time

from clusters import say
from . import known
from .history import NAMESPACES, History

# Debian's Python, which has Debian's modules.
PYTHON = "/usr/bin/python3"
PATIENCE = 90
# A call that takes longer by this, in seconds, waits for something that the other one does not.
SLOW = 5
POOLS = ("beside-images", "beside-data")


class Side:
    """A player on one cluster; a new one when it hangs or ends."""

    def __init__(self, conf, log, pools=POOLS):
        self.conf, self.log, self.pools, self.process = str(conf), log, pools, None

    def ask(self, call):
        if self.process is None:
            self.start()
        pool, data_pool = self.pools
        text = json.dumps(call).replace('"DATA"', f'"{data_pool}"').replace("POOL", pool)
        try:
            self.process.stdin.write(text + "\n")
            self.process.stdin.flush()
            readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
            line = self.process.stdout.readline() if readable else None
        except BrokenPipeError:
            line = ""
        if not line:
            self.stop()
            return {"hangs": PATIENCE} if line is None else {"client": "ended"}
        return json.loads(line)

    def start(self):
        player = pathlib.Path(__file__).with_name("player.py")
        self.process = subprocess.Popen(
            [PYTHON, str(player), self.conf, *self.pools], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.log, text=True)

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Pair:
    def __init__(self, ours, theirs):
        self.sides = (ours, theirs)
        self.asked = self.good = 0
        self.slow = []
        self.threads = concurrent.futures.ThreadPoolExecutor(2)

    def ask(self, call):
        self.asked += 1
        (ours, took), (theirs, they_took) = self.threads.map(lambda side: timed(side, call),
                                                             self.sides)
        self.good += "value" in theirs
        if took > SLOW + 3 * they_took or they_took > SLOW + 3 * took:
            self.slow.append(f"{took:.1f} s, Ceph {they_took:.1f} s: {shown(call)}")
        return ours, theirs

    def play(self, seed):
        """The first difference in a few words, and the calls that led to it."""
        told = [f"seed {seed}"]
        for answer in self.ask({"on": "player", "call": "clean"}):
            if "value" not in answer:
                raise RuntimeError(f"pools are not cleaned: {answer}")
        history = History(seed)
        while (call := history.next()) is not None:
            ours, theirs = self.ask(call)
            told.append(f"{shown(call)} -> {short(theirs, 200)}")
            if (found := difference(call, ours, theirs)):
                return found, told
            if "value" not in theirs and ("hangs" in theirs or "client" in theirs):
                return None
            history.saw(call, theirs)
        look = {"on": "player", "call": "look", "args": [NAMESPACES]}
        ours, theirs = self.ask(look)
        if (found := difference(look, ours, theirs)):
            return found, told
        return None


def timed(side, call):
    began = time.monotonic()
    return side.ask(call), time.monotonic() - began


def difference(call, ours, theirs):
    if ours == theirs or known.differs(call, ours, theirs):
        return None
    a, b = ours.get("value"), theirs.get("value")
    path = ""
    while isinstance(a, (dict, list)) and type(a) is type(b) and a != b:
        step = first_step(a, b)
        if step is None:
            break
        path += f" {step}"
        a, b = a[step], b[step]
    if a == b:
        a, b = ours, theirs
    return f"{call['call']}{path}", f"  ours:   {short(a)}\n  theirs: {short(b)}"


def first_step(a, b):
    """Where in two lists or two tables the first difference is, if it is in one place."""
    if isinstance(a, dict):
        return next((k for k in a if k in b and a[k] != b[k]), None) if a.keys() == b.keys() \
            else None
    return next((n for n, (x, y) in enumerate(zip(a, b)) if x != y), None) \
        if len(a) == len(b) else None


def short(value, most=900):
    text = json.dumps(value)
    return text if len(text) <= most else f"{text[:most]}..."


def shown(call):
    args = [*map(short, call.get("args", [])),
            *(f"{k}={short(v)}" for k, v in call.get("kw", {}).items())]
    on = "/".join(call["group"][1:]) if call["on"] == "group" else call["on"]
    text = f"{on}.{call['call']}({', '.join(args)[:300]})"
    return re.sub(r"(\w)\1{9,}", r"\1..", text)


def compare(first, seeds, ours, theirs, work):
    with open(work / "players.log", "w") as log:
        pair = Pair(*(Side(cluster.folder / "ceph.conf", log) for cluster in (ours, theirs)))
        try:
            return run(first, seeds, pair)
        finally:
            for side in pair.sides:
                side.stop()


def run(first, seeds, pair):
    kinds, began, played = {}, time.monotonic(), 0
    try:
        for seed in range(first, first + seeds):
            found = pair.play(seed)
            played += 1
            if found:
                (kind, how), told = found
                if kind not in kinds:
                    print(f"== {kind}\n" + "\n".join(told) + f"\n{how}", flush=True)
                kinds[kind] = kinds.get(kind, 0) + 1
    except KeyboardInterrupt:
        say("enough: what was seen until now")
    for kind, times in sorted(kinds.items()):
        print(f"{times} times: {kind}")
    for line in pair.slow:
        print(f"slow: {line}")
    print(f"{played} histories, {pair.asked} calls, {pair.good} of them with success, "
          f"{len(kinds)} kinds of differences")
    say(f"{time.monotonic() - began:.0f} s")
    return 1 if kinds else 0
