"""Answers to commands of `ceph`, as far as they must be the same."""

import json
import re

# How many differences of one answer are told, and how much of each.
TOLD = 40
SHOWN = 400

# Commands of which only the form is compared: what they say depends on the machine and the hour.
VARYING_COMMANDS = re.compile(
    r"(status|df|osd df|osd perf|osd status|osd utilization|health|health detail|report|"
    r"pg (dump|dump_json|dump_pools_json|dump_stuck|stat|ls|ls-by-\w+)|osd pool stats|"
    r"time-sync-status|log last|osd metadata|mon metadata|mgr metadata|\w+ count-metadata|"
    r"node ls|osd find|balancer (eval|eval-verbose|status)|progress( json)?|features|"
    r"osd pool autoscale-status|mgr dump|mgr stat|quorum_status|mon_status|osd last-stat-seq|"
    r"device .*|config log|rbd perf .*|mon stat|mon versions|versions|osd info|osd numa-status|"
    r"(test-)?reweight-by-\w+|osd (test-)?reweight-by-\w+|service dump|service status|"
    r"config show|config show-with-defaults|pg query|crash stat|"
    r"perf dump|perf histogram dump|perf schema|dump_\w+|bench|heap|bluestore .*|status|"
    r"get_mapped_pools|list_devices|smart|version|ops|sessions|cache drop|compact)$")

# Fields that say when, how often or where.
VARYING_FIELDS = {
    "epoch", "created", "modified", "last_change", "snap_epoch", "last_force_op_resend",
    "last_force_op_resend_prenautilus", "last_force_op_resend_preluminous", "osd_up_since",
    "osd_in_since", "last_up_change", "last_in_change", "up_from", "up_thru", "down_at",
    "last_clean_begin", "last_clean_end", "lost_at", "laggy_probability", "laggy_interval",
    "down_stamp", "public_addrs", "cluster_addrs", "heartbeat_back_addrs",
    "heartbeat_front_addrs", "crush_version", "last_purged_snaps_scrub", "features",
    "dead_epoch", "create_time", "stamp", "key", "fsid", "uuid", "create_time", "quorum_age",
    "old_weight", "mkfs_at", "mtime", "active_change", "active_gid", "nonce", "addr",
    "public_addr", "cluster_addr", "heartbeat_back_addr", "heartbeat_front_addr",
}

ABOUT = [(re.compile(pattern), text) for pattern, text in [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?([+-]\d{4}|Z)?", "TIME"),
    (r"\[?(v[12]:127\.0\.0\.1:\d+/\d+,?)+\]?", "ADDRS"),
    (r"127\.0\.0\.1:\d+/\d+", "ADDR"),
    (r"\b[A-Za-z0-9+/]{38}==", "KEY"),
    (r"(epoch|last_change|lfor|flags_epoch|version|up_from|up_thru|down_at) [\d/]+", r"\1 N"),
    (r"\[\d+,\d+\)", "[N,N)"),
    (r"\be\d+\b", "eN"),
    (r"\(since [^)]*\)", "(since AGE)"),
    (r"ceph version [^\n\"]*", "VERSION"),
    (r"(/[\w.+-]+){3,}", "PATH"),
]]


def plain(text):
    """Text without what differs from run to run."""
    for pattern, replacement in ABOUT:
        text = pattern.sub(replacement, text)
    return text.rstrip("\n")


def form(text):
    """What is left of a text without its numbers: headings and words, line by line."""
    text = re.sub(r"-?\b\d+(\.\d+)?(e[+-]?\d+)?", "N", plain(text))
    text = re.sub(r"\b(N ?)(B|KiB|MiB|GiB|TiB|k|M)\b", "N", text)
    return [" ".join(line.split()) for line in text.splitlines()]


class Answer:
    def __init__(self, result, output, status):
        self.result = result
        self.status = status
        self.output = output

    @property
    def text(self):
        return self.output.decode("utf-8", "backslashreplace")

    def value(self):
        """Its JSON, if it is some."""
        text = self.text.strip()
        if text[:1] not in ("{", "["):
            return None
        try:
            return json.loads(text)
        except ValueError:
            return None

    def __str__(self):
        parts = [str(self.result)]
        if self.status:
            parts.append(f"status {cut(self.status)!r}")
        if self.output:
            parts.append(f"output {cut(self.text)!r}")
        return ", ".join(parts)


def cut(text):
    text = str(text)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)})"


def differences(command, theirs, ours):
    """Where two answers differ: pairs of a place and what stands there, Ceph's first."""
    found = {}
    varies = bool(VARYING_COMMANDS.match(command.get("prefix", "")))
    if theirs.result != ours.result:
        found["result"] = (theirs, ours)
    elif form(theirs.status) != form(ours.status) if varies else \
            plain(theirs.status) != plain(ours.status):
        found["status"] = (theirs.status, ours.status)
    if theirs.result < 0 or ours.result < 0:
        if theirs.result == ours.result and bool(theirs.output) != bool(ours.output):
            found["output of an error"] = (theirs.text, ours.text)
        return found
    a, b = theirs.value(), ours.value()
    if a is not None and b is not None:
        compare_values(a, b, "", not varies, found)
    elif command.get("prefix") in ("osd getmap", "osd getcrushmap", "mon getmap"):
        if bool(theirs.output) != bool(ours.output):
            found["output"] = (len(theirs.output), len(ours.output))
    elif varies:
        compare_forms(theirs.text, ours.text, found)
    elif plain(theirs.text) != plain(ours.text):
        found["output"] = (theirs.text, ours.text)
    return dict(list(found.items())[:TOLD])


def compare_forms(theirs, ours, found):
    theirs, ours = form(theirs), form(ours)
    if theirs[:1] != ours[:1]:
        found["heading"] = ("\n".join(theirs), "\n".join(ours))
    elif set(theirs) != set(ours):
        found["form"] = ("\n".join(theirs), "\n".join(ours))


def kind(value):
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, (int, float)) else type(value).__name__


def compare_values(a, b, place, exactly, found):
    if kind(a) != kind(b):
        found[f"{place} kind"] = (a, b)
    elif isinstance(a, dict):
        compare_objects(a, b, place, exactly, found)
    elif isinstance(a, list):
        if len(a) != len(b) and (exactly or not a or not b):
            found[f"{place}[] length"] = (a, b)
        for x, y in zip(a, b):
            compare_values(x, y, f"{place}[]", exactly, found)
    elif exactly and place.rpartition(".")[2] not in VARYING_FIELDS:
        if plain(str(a)) != plain(str(b)) and a != b:
            found.setdefault(f"{place}", (a, b))


def compare_objects(a, b, place, exactly, found):
    # Values by id, rule or version; what is not a field is not told as one.
    a, b = ({plain(key): value for key, value in x.items()} for x in (a, b))
    for key in a.keys() - b.keys():
        found[f"{place}.{key} missing"] = (a[key], None)
    for key in b.keys() - a.keys():
        found[f"{place}.{key} only ours"] = (None, b[key])
    for key in a.keys() & b.keys():
        compare_values(a[key], b[key], f"{place}.{key}", exactly, found)
    if a.keys() == b.keys() and list(a) != list(b):
        found[f"{place} order of fields"] = (list(a), list(b))
