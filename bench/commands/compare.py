#!/usr/bin/python3
"""Compares the answers of two clusters, one of real Ceph and one of Loligo, to commands of `ceph`.

Every command is sent to both over librados: a catalogue (catalogue.py), each in every format
and after malformed ones made of it, then random ones made of Ceph's own descriptions. `bench/beside`
starts the clusters and this. Needs python3-rados and python3-ceph-argparse.

Result code, status text and output must be the same: text but for ids, addresses, times and epochs,
JSON field by field (answers.py). Each kind of difference is printed once.
"""

import argparse
import contextlib
import copy
import errno
import io
import json
import random
import shlex
import sys
import time

import ceph_argparse
import rados

import catalogue
import known
from answers import Answer, cut, differences

FORMATS = ["json", "json-pretty", "nosuch"]
PARTS = ["descriptions", "catalogue", "told", "random"]
TO_THE_MGR = 8
WAIT_SECONDS = 6
SLOW_SECONDS = 3
# Commands of a random history.
COMMANDS = 40


class Side:
    """A connection to one cluster."""

    def __init__(self, conf):
        self.conf = conf
        self.connect()

    def connect(self):
        self.rados = rados.Rados(conffile=self.conf)
        for wait in ("rados_mon_op_timeout", "rados_osd_op_timeout"):
            self.rados.conf_set(wait, str(WAIT_SECONDS))
        self.rados.connect(timeout=60)

    def connect_anew(self):
        """Lets go of what ended a daemon: the client would ask it again and again."""
        self.rados.shutdown()
        self.connect()

    def ask(self, command, to="mon", data=b""):
        text = json.dumps(command)
        try:
            if to == "mon":
                answer = self.rados.mon_command(text, data)
            elif to == "mgr":
                answer = self.rados.mgr_command(text, data)
            elif "." in to:
                answer = self.rados.pg_command(to, text, data)
            else:
                answer = self.rados.osd_command(int(to), text, data)
        except rados.Error as e:
            answer = -(e.errno or 1000), b"", str(e)
        result, output, status = answer
        return Answer(result, output, status)

    def json(self, **command):
        answer = self.ask({**command, "format": "json"})
        if answer.result:
            raise RuntimeError(f"{command}: {answer}")
        return json.loads(answer.output)


class Commands:
    """What can be asked, by Ceph's own descriptions."""

    def __init__(self, side):
        raw = side.json(prefix="get_command_descriptions")
        self.all = ceph_argparse.parse_json_funcsigs(json.dumps(raw), "cli")
        self.by_prefix = {}
        for described in self.all.values():
            prefix = " ".join(p.instance.prefix for p in described["sig"] if is_word(p))
            self.by_prefix.setdefault(prefix, described)

    def parse(self, line):
        """A line as it is typed, as the client sends it."""
        with contextlib.redirect_stderr(io.StringIO()) as said:
            command = ceph_argparse.validate_command(self.all, shlex.split(line))
        if not command:
            raise ValueError(f"{line}: {said.getvalue()}")
        return {key: value for key, value in command.items() if key != "target"}

    def target(self, prefix):
        described = self.by_prefix.get(prefix)
        return "mgr" if described and described["flags"] & TO_THE_MGR else "mon"

    def parameters(self, prefix):
        described = self.by_prefix.get(prefix)
        return [p for p in described["sig"] if not is_word(p)] if described else []

    def allowed(self, command):
        """Whether a client would send it: it looks at the description first."""
        for p in self.parameters(command["prefix"]):
            given = command.get(p.name)
            if given is None or given == []:
                if p.req:
                    return False
                continue
            for value in given if isinstance(given, list) else [given]:
                if isinstance(value, bool):
                    continue
                try:
                    copy.copy(p.instance).valid(str(value))
                except ceph_argparse.ArgumentError:
                    return False
        return True

    def reads(self, prefix):
        described = self.by_prefix.get(prefix)
        return bool(described) and "w" not in described["perm"]


def is_word(parameter):
    return parameter.t is ceph_argparse.CephPrefix


class Pair:
    """Both clusters, and what differed."""

    def __init__(self, ceph, ours, only):
        self.ceph, self.ours, self.only = Side(ceph), Side(ours), only
        self.commands = Commands(self.ceph)
        self.asked = 0
        self.kinds = {}
        self.known = {}
        self.unanswered = []

    @property
    def sides(self):
        return self.ceph, self.ours

    def ask(self, command, to=None, history=(), data=b""):
        """Sends a command to both; whether they agree in what they did."""
        to = to or self.commands.target(command.get("prefix", ""))
        theirs, ours = (self.timed(side, command, to, data) for side in self.sides)
        self.asked += 1
        if theirs.result == -errno.ETIMEDOUT:
            self.unanswered.append(command)
            print(f"... Ceph did not answer {json.dumps(command)}", file=sys.stderr, flush=True)
            self.ceph.connect_anew()
            return False
        found = differences(command, theirs, ours)
        for place, values in found.items():
            self.note(command, to, place, values, (theirs, ours), history)
        return theirs.result == ours.result

    def timed(self, side, command, to, data):
        begun = time.monotonic()
        answer = side.ask(command, to, data)
        took = time.monotonic() - begun
        if took > SLOW_SECONDS:
            whose = "Ceph's" if side is self.ceph else "our"
            print(f"... {whose} answer took {took:.0f} s: {json.dumps(command)}", file=sys.stderr,
                  flush=True)
        return answer

    def note(self, command, to, place, values, answers, history):
        prefix = str(command.get("prefix"))
        codes = f"{answers[0].result} / {answers[1].result}"
        if place in ("status", "result"):
            place += f" {codes}"
        reason = known.reason(prefix, place)
        kind = f"{prefix} ({to}): {place}" if to not in ("mon", "mgr") else f"{prefix}: {place}"
        if reason:
            self.known.setdefault(reason, set()).add(kind)
            return
        if place.startswith(("status", "result")):
            # Each wrong argument has a text of its own.
            kind += f" {wrongness(command)}"
        seen = self.kinds.setdefault(kind, [0, ""])
        seen[0] += 1
        if seen[0] == 1:
            seen[1] = "\n".join([
                *(f"  after   {json.dumps(c)}" for c in history),
                f"  command {json.dumps(command)}", f"  ceph   {cut(values[0])!s}",
                f"  ours   {cut(values[1])!s}"])

    def prepare(self, text):
        for line in catalogue.lines(text):
            self.ask(self.commands.parse(line))

    def report(self):
        for kind, (times, example) in sorted(self.kinds.items()):
            print(f"== {times} times: {kind}\n{example}")
        print(f"{self.asked} commands, {len(self.kinds)} kinds of differences, "
              f"{len(self.unanswered)} that Ceph did not answer")
        for reason, kinds in sorted(self.known.items()):
            print(f"   {len(kinds)} known: {reason}")
        for command in self.unanswered[:20]:
            print(f"   unanswered: {json.dumps(command)}")


def wrongness(command):
    return ",".join(sorted(key for key in command if key not in ("prefix", "format")))


# The same state on both.


def settle(pair):
    """Lets both have the same state, and the same number for the next pool."""
    for side in pair.sides:
        for pool in side.json(prefix="osd pool ls"):
            remove_pool(side, pool)
    counts = [side.json(prefix="osd dump")["pool_max"] for side in pair.sides]
    for side, count in zip(pair.sides, counts):
        for _ in range(max(counts) - count):
            side.ask({"prefix": "osd pool create", "pool": "filler", "pg_num": 1})
            remove_pool(side, "filler")


def remove_pool(side, pool):
    side.ask({"prefix": "osd pool set", "pool": pool, "var": "nodelete", "val": "false"})
    answer = side.ask({"prefix": "osd pool rm", "pool": pool, "pool2": pool,
                       "yes_i_really_really_mean_it": True})
    if answer.result:
        raise RuntimeError(f"cannot remove the pool {pool}: {answer}")


def wait_until_clean(pair):
    def is_clean(side):
        answer = side.ask({"prefix": "status", "format": "json"})
        status = json.loads(answer.output)["pgmap"]
        return all(s["state_name"] == "active+clean" for s in status["pgs_by_state"])
    end = time.monotonic() + 20
    while not all(is_clean(side) for side in pair.sides) and time.monotonic() < end:
        time.sleep(0.3)


def users(side):
    return [user["entity"] for user in side.json(prefix="auth ls").get("auth_dump", [])]


class Baseline:
    """What histories start from, so that each finds the same."""

    def __init__(self, pair):
        self.pair = pair
        # The ids of buckets and the places of what OSDs add by themselves when they start.
        self.crush = pair.ceph.ask({"prefix": "osd getcrushmap"}).output
        self.config = pair.ceph.json(prefix="config dump")
        self.users = set(users(pair.ceph))

    def restore(self):
        settle(self.pair)
        for side in self.pair.sides:
            self.restore_config(side)
            self.restore_osds(side, self.crush)
            for user in users(side):
                if user not in self.users:
                    side.ask({"prefix": "auth rm", "entity": user})
            for key in side.json(prefix="config-key ls"):
                if key.startswith("notes"):
                    side.ask({"prefix": "config-key rm", "key": key})

    def restore_config(self, side):
        names = {(o["section"], o["name"], o["mask"], o["value"]) for o in self.config}
        for o in side.json(prefix="config dump"):
            if (o["section"], o["name"], o["mask"], o["value"]) not in names:
                who = o["section"] + ("/" + o["mask"] if o["mask"] else "")
                side.ask({"prefix": "config rm", "who": who, "name": o["name"]})
        for o in self.config:
            side.ask({"prefix": "config set", "who": o["section"], "name": o["name"],
                      "value": o["value"]})

    def restore_osds(self, side, crush):
        side.ask({"prefix": "osd setcrushmap"}, data=crush)
        for flag in ["pause", "noup", "nodown", "noin", "nobackfill", "norebalance", "norecover",
                     "noscrub", "nodeep-scrub", "notieragent", "nosnaptrim"]:
            side.ask({"prefix": "osd unset", "key": flag})
        side.ask({"prefix": "osd set", "key": "noout"})
        side.ask({"prefix": "osd unset-group", "flags": "noup,nodown,noin,noout",
                  "who": ["osd.0", "osd.1", "osd.2", "osd.3", "osd.4", "h0", "h1", "h2", "h3",
                          "default", "ssd", "hdd"]})
        side.ask({"prefix": "osd blocklist clear"})
        for name, value in [("nearfull", 0.85), ("backfillfull", 0.9), ("full", 0.95)]:
            side.ask({"prefix": f"osd set-{name}-ratio", "ratio": value})
        for osd in range(5):
            # Three have daemons.
            side.ask({"prefix": "osd reweight", "id": osd, "weight": float(osd < 3)})
            side.ask({"prefix": "osd primary-affinity", "id": osd, "weight": 1.0})
        for rule in side.json(prefix="osd erasure-code-profile ls"):
            if rule != "default":
                side.ask({"prefix": "osd erasure-code-profile rm", "name": rule})


# The parts.


def compare_descriptions(pair):
    """That a client is told the same: it checks what is typed by that."""
    described = []
    for side in pair.sides:
        raw = side.json(prefix="get_command_descriptions")
        described.append({signature(d): d for d in raw.values()})
    theirs, ours = described
    for (prefix, words), d in sorted(theirs.items()):
        pair.asked += 1
        if known.left_out(prefix) or d["flags"] & 2:
            continue
        if (prefix, words) not in ours:
            others = [w for p, w in ours if p == prefix]
            if known.reason(prefix, "description"):
                continue
            pair.kinds[f"{prefix}: description"] = [
                1, f"  ceph   {prefix} {words}\n  ours   {others or 'no such command'}"]


def signature(described):
    words = [p if isinstance(p, str) else None for p in described["sig"]]
    prefix = " ".join(w for w in words if w)
    shown = []
    for p in described["sig"]:
        if isinstance(p, dict):
            if p.get("type") == "CephPrefix" or p.get("prefix"):
                continue
            facts = [p["name"], p.get("type", "")]
            facts += [f"{k}={p[k]}" for k in ("strings", "range", "goodchars", "n") if k in p]
            if str(p.get("req", "true")).lower() != "true":
                facts.append("optional")
            shown.append(":".join(facts))
    return prefix, " ".join(shown)


def compare_catalogue(pair):
    pair.prepare(catalogue.STATE)
    wait_until_clean(pair)
    pool = next(p["poolnum"] for p in pair.ceph.json(prefix="osd lspools")
                if p["poolname"] == "pa")
    done = set()
    for line in catalogue.lines(catalogue.CATALOGUE):
        if pair.only and not line.startswith(pair.only) and not changes(pair, line):
            continue
        command = pair.commands.parse(line.replace("PG", str(pool)))
        prefix = command["prefix"]
        if prefix not in done and (not pair.only or line.startswith(pair.only)):
            done.add(prefix)
            for wrong in malformed(command, pair.commands.parameters(prefix)):
                if worth_asking(pair, wrong):
                    pair.ask(wrong)
        pair.ask(command)
        if pair.commands.reads(prefix):
            for fmt in FORMATS:
                pair.ask({**command, "format": fmt})
    look(pair, ())


def worth_asking(pair, wrong):
    """A mon of Ceph does something or other with what no client sends, or with no name at all; ours
    refuses it."""
    nameless = any(value in ("", [""]) for value in wrong.values())
    return pair.commands.allowed(wrong) and \
        (pair.commands.reads(wrong["prefix"]) or not nameless)


def changes(pair, line):
    return not pair.commands.reads(pair.commands.parse(line.replace("PG", "999"))["prefix"])


def look(pair, history):
    for line in catalogue.lines(catalogue.LOOKS):
        pair.ask({**pair.commands.parse(line), "format": "json"}, history=history)


def malformed(command, parameters):
    """Commands with one thing wrong in each."""
    for p in parameters:
        name = p.name.replace("-", "_") if p.name not in command else p.name
        if p.req and name in command and p.t.__name__ not in ENDS_CEPH_WITHOUT:
            yield {k: v for k, v in command.items() if k != name}
        for value in wrong_values(p):
            yield {**command, name: value}
    yield {**command, "nosuch_argument": "x"}


# Ceph's mon ends when one of these is missing...
ENDS_CEPH_WITHOUT = {"CephInt", "CephFloat", "CephOsdName"}
# ...and when a value is of another JSON kind than the description says.
WRONG = {
    "CephInt": [-1, 0, 7, 1 << 40, (1 << 63) - 1],
    "CephFloat": [-1.0, 0.5, 1e30],
    "CephChoices": ["bogus", ""],
    "CephString": ["", "ä b$c", "nosuch"],
    "CephBool": [False],
    "CephOsdName": [99, -1, 1],
    "CephPgid": ["99.0", "x", "1", "1.zz", "1.ffff", ""],
    "CephPoolname": ["nosuch", ""],
    "CephObjectname": [""],
    "CephEntityAddr": ["x", "1.2.3.4", "1.2.3.4:5/6", "::1", "[::1]:0/1", ""],
    "CephIPAddr": ["x", "1.2.3.4"],
    "CephUUID": ["x"],
}


def wrong_values(parameter):
    values = WRONG.get(parameter.t.__name__, [""])
    if not parameter.N:
        return values
    # A list that is empty, or has the wrong things in it.
    kind = float if parameter.t is ceph_argparse.CephFloat else str
    return [[], *([kind(v)] for v in values)]


# By chance.

NAMES = ["pa", "pb", "pc", "pd", "px", "default", "h0", "h1", "h3", "h9", "r1", "osd.0", "osd.3",
         "osd.4", "flat", "onssd", "replicated_rule", "ssd", "hdd", "host", "rack", "osd",
         "root=default", "host=h1", "host=h3", "host=h9", "rack=r1", "rack=r9", "nosuch", "all",
         "rbd", "rgw", "k2", "default~ssd", "0", "3", "global", "osd/class:ssd", "mon.a",
         "osd_max_backfills", "debug_osd", "rbd_cache", "true", "10", "1G", "client.app",
         "client.x", "allow r", "mon", "noup", "noin,noout", "k=2", "m=1", "s1", "before", "a b"]
BY_NAME = {
    "pool": ["pa", "pb", "pc", "pd"], "type": ["host", "rack", "root", "osd", "nosuch"],
    "class": ["ssd", "hdd", "nvme"], "who": ["osd", "osd.1", "global", "mon", "client.app", "h3"],
    "name": ["h1", "h3", "h9", "r9", "osd.3", "osd.4", "flat", "k2", "debug_osd",
             "osd_max_backfills"],
    "key": ["osd_max_backfills", "debug_osd", "noup", "notes/one", "tier"],
    "args": ["root=default", "host=h1", "host=h3", "host=h9", "rack=r1", "rack=r9"],
    "ids": ["3", "osd.4", "4", "99"], "root": ["default", "h1", "r1"],
    "entity": ["client.app", "client.x", "client.y", "osd.7", "x"],
    "caps": ["mon", "allow r", "osd", "allow rw pool=pa", "profile rbd"],
    "snap": ["s1", "s2", "before"], "item": ["osd.0", "osd.3", "h1"], "profile": ["k2", "k=2", "m=1"],
    "app": ["rbd", "rgw", "cephfs", "own"], "flags": ["noup", "noin,noout", "bad"],
    "poolstr": ["pa", "nosuch"], "code": ["OSD_DOWN", "OSDMAP_FLAGS", "POOL_APP_NOT_ENABLED"],
    "ttl": ["1h", "5", "x"], "rule": ["flat", "onssd", "nosuch"], "ancestor": ["default", "h3"],
    "val": ["1", "2", "3", "true", "false", "0.5", "none", "force", "flat", "16", "unset", "10M"],
    "value": ["1", "true", "5/5", "x", "hot"], "expire": [60, 3600.5],
}
BY_KIND = {
    "CephInt": [0, 1, 2, 3, 4, 5, 8, 16, -1, 1 << 33],
    "CephFloat": [0.0, 0.25, 0.5, 1.0, 2.0, 0.123456, -1.0, 1e9],
    "CephBool": [True, False], "CephOsdName": [3, 4, 3, 4, "osd.3", 0, 99],
    "CephPoolname": ["pa", "pb", "pc", "pd", "nosuch"], "CephObjectname": ["obj", "a/b", ""],
    "CephEntityAddr": ["10.1.2.3:0/77", "10.1.2.4:0/5", "10.1.2.5", "10.3.0.0/16", "x"],
    "CephUUID": ["66666666-0000-4000-8000-000000000006",
                 "33333333-0000-4000-8000-000000000003"],
}


def by_chance(rng, pair, pool):
    """One command, mostly a sensible one."""
    while True:
        prefix = rng.choice(sorted(pair.commands.by_prefix))
        if not (known.left_out(prefix) or known.NOT_BY_CHANCE.match(prefix) or
                pair.commands.by_prefix[prefix]["flags"] & 2):
            break
    command = {"prefix": prefix}
    for p in pair.commands.parameters(prefix):
        if rng.random() < (0.97 if p.req else 0.3):
            command[p.name] = chosen(rng, p, pool)
    if pair.commands.reads(prefix):
        command["format"] = rng.choice(["json", "plain"])
    return command


def chosen(rng, parameter, pool):
    def one():
        kind = parameter.t.__name__
        if rng.random() < 0.04:
            return rng.choice(WRONG.get(kind, [5]))
        if kind == "CephChoices":
            return rng.choice(parameter.instance.strings)
        if kind == "CephPgid":
            return rng.choice([f"{pool}.0", f"{pool}.3", f"{pool}.ff", "99.0"])
        if kind in BY_KIND:
            return rng.choice(BY_KIND[kind])
        if parameter.name in BY_NAME and rng.random() < 0.85:
            return rng.choice(BY_NAME[parameter.name])
        return rng.choice(NAMES)
    if not parameter.N:
        return one()
    return [str(one()) if parameter.t.__name__ != "CephFloat" else one()
            for _ in range(rng.randint(1, 3))]


def compare_history(pair, baseline, seed):
    baseline.restore()
    pair.prepare(catalogue.STATE)
    pool = next(p["poolnum"] for p in pair.ceph.json(prefix="osd lspools")
                if p["poolname"] == "pa")
    rng = random.Random(seed)
    history = []
    for _ in range(COMMANDS):
        command = by_chance(rng, pair, pool)
        agreed = pair.ask(command, history=history[-6:])
        if not pair.commands.reads(command["prefix"]):
            history.append(command)
            if not agreed:
                # From here on they are not alike any more.
                return
    look(pair, history)


def compare_told(pair):
    """What is asked of an OSD itself."""
    wait_until_clean(pair)
    pool = next(p["poolnum"] for p in pair.ceph.json(prefix="osd lspools")
                if p["poolname"] == "pa")
    for command in catalogue.told():
        for fmt in (None, "json"):
            pair.ask({**command, **({"format": fmt} if fmt else {})}, to="0")
    for command in ({"prefix": "query"}, {"prefix": "list_unfound"}, {"prefix": "log"},
                    {"prefix": "mark_unfound_lost", "mulcmd": "revert"}, {"prefix": "nosuch"},
                    {"prefix": "scrub"}, {"prefix": "pg", "cmd": "query", "pgid": f"{pool}.0"}):
        pair.ask({**command, "format": "json"}, to=f"{pool}.0")


def main():
    args = arguments()
    pair = Pair(args.ceph, args.loligo, args.only)
    try:
        compare(pair, args, args.part or PARTS)
    finally:
        pair.report()
    sys.exit(1 if pair.kinds else 0)


def compare(pair, args, parts):
    settle(pair)
    pair.prepare(catalogue.SETUP)
    baseline = Baseline(pair)
    baseline.restore()
    if "descriptions" in parts:
        compare_descriptions(pair)
    if "catalogue" in parts:
        compare_catalogue(pair)
        baseline.restore()
    if "told" in parts:
        pair.prepare(catalogue.STATE)
        compare_told(pair)
    if "random" in parts:
        for seed in range(args.first, args.first + args.seeds):
            compare_history(pair, baseline, seed)


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ceph", required=True, help="configuration of a cluster of real Ceph")
    p.add_argument("--loligo", required=True, help="configuration of a Loligo cluster")
    p.add_argument("--part", action="append",
                   choices=PARTS,
                   help="only this (default: all)")
    p.add_argument("--only", default="", help="of the catalogue only what begins so")
    p.add_argument("--first", type=int, default=1, help="first random history (1)")
    p.add_argument("--seeds", type=int, default=20, help="how many random histories (20)")
    return p.parse_args()


if __name__ == "__main__":
    main()
