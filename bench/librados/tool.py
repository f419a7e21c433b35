"""Command lines of `rados` to both clusters: what it prints, and its exit code."""

import pathlib
import re
import subprocess
import tempfile

from kinds import Kinds

POOL = "beside-tool"
# Longest time of one command line.
SECONDS = 60

# In this order, in one pool. Not: `load-gen`, which does what chance wants; `set-redirect`, `tier-promote`
# and `tier-flush`, of which our OSDs say that they do not support them; `--striper get`, which sometimes ends
# the tool with either. FILE is a file of 10,000 bytes; OUT one to write to.
LINES = """
lspools
ls
-p no-such-pool ls
ls --all
ls extra words
put a FILE
put a FILE --offset 5000
put a FILE --offset -1
put a no-such-file
put a
put
get a OUT
get no-such OUT
get a
stat a
stat no-such
stat2 a
stat
append a FILE
append a
truncate a 100
truncate a -1
truncate a many
truncate a
create b
create b
create
touch b
touch b 1000000
touch no-such
touch b yesterday
rm b
rm b
rm no-such other
rm a b --force-full
rm
put a FILE
cp a c
cp a a
cp no-such d
cp a
cp a e --target-pool no-such-pool
cp a e --target-pool beside-tool --target-nspace other
cp a f --target-locator key
--object-locator key stat f
--object-locator key ls
-N other ls
-N other stat e
ls --all
ls --default
-f json ls
-f json-pretty ls --all
-f json lspools
setxattr a one 1
setxattr a two
setxattr a --input-file FILE
getxattr a one
getxattr a none
getxattr no-such one
getxattr a
listxattr a
listxattr no-such
listxattr
rmxattr a one
rmxattr a one
rmxattr a
listxattr a
mapext a
mapext no-such
setomapval a key value
setomapval a other FILE
setomapval a file --input-file FILE
setomapval a key
setomapval no-such key value
listomapkeys a
listomapkeys none
listomapvals no-such
getomapval a key
getomapval a key OUT
getomapval a none
getomapval none none
getomapval a
rmomapkey a key
rmomapkey a key
rmomapkey none key
rmomapkey a
setomapheader a header
setomapheader a
getomapheader a
getomapheader a OUT
getomapheader none
clearomap a
clearomap none
clearomap
listomapkeys a
set-alloc-hint a 4096 4096
set-alloc-hint a many 4096
set-alloc-hint a 4096
set-alloc-hint none 4096 4096
lock list a
lock get a lock
lock get a lock
lock get a lock --lock-cookie 5 --lock-tag tag
lock get a other --lock-type shared --lock-tag tag --lock-description why --lock-duration 300
lock get a other --lock-type shared --lock-tag other
lock get a other --lock-type wrong
lock get a --lock-cookie 5
lock list a
lock info a lock
lock info a other
lock info a none
lock info none lock
-f json lock list a
-f json-pretty lock info a other
lock break a lock client.1
lock break a lock nobody
lock break a
lock wrong a
lock
listwatchers a
listwatchers none
notify a message
notify none message
notify a
-f json listwatchers a
lssnap
mksnap one
mksnap one
mksnap
lssnap
rm a
-s one stat a
-s one get a OUT
-s one ls
-s none get a OUT
listsnaps a
-f json listsnaps a
-f json-pretty listsnaps c
listsnaps none
rollback a one
rollback a none
rollback none one
rollback a
stat a
put a FILE
listsnaps a
rmsnap one
rmsnap one
rmsnap
lssnap
listsnaps c
df
-f json df
-f xml df
cppool beside-tool beside-tool-2
cppool no-such-pool beside-tool
cppool beside-tool
purge beside-tool
purge no-such-pool --yes-i-really-really-mean-it
bench 1 write -b 4096 -t 2 --no-cleanup
bench 1 write -b 4096 -O 1024
bench 1 seq -t 2
bench 1 rand -t 2
bench 1 write --run-name mine -b 4096 --no-cleanup
bench 1 seq --run-name none
bench 1 wrong
bench 0 write
bench
cleanup
cleanup
cleanup --prefix benchmark_data
cleanup --run-name mine
cleanup --run-name none
ls --all
export OUT
export
import --dry-run OUT
import OUT
import --no-overwrite OUT
import FILE
import no-such-file
import
put --striper s FILE
--striper put s FILE
--striper stat s
--striper setxattr s one 1
--striper listxattr s
--striper truncate s 100
--striper append s FILE
--striper rm s
--striper ls
list-inconsistent-pg beside-tool
list-inconsistent-pg no-such-pool
list-inconsistent-pg
list-inconsistent-obj 999.0
list-inconsistent-obj 1
list-inconsistent-obj PGID
list-inconsistent-snapset PGID
list-inconsistent-snapset 999.0
-f json-pretty list-inconsistent-obj PGID
--pgid PGID ls
--pgid 999.0 ls
--pgid wrong ls
cache-flush a
cache-try-flush a
cache-evict a
cache-flush-evict-all
cache-try-flush-evict-all
set-chunk a 0 10 --target-pool beside-tool c 0
unset-manifest a
tier-evict a
wrong
-p beside-tool
--wrong ls
-p
ls
purge beside-tool --yes-i-really-really-mean-it
ls --all
""".strip().splitlines()

# Of what is printed: what is of this one cluster, or of the moment.
OWN = [
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?([+-]\d{4})?", "TIME"),
    (r"\b(client|osd)\.\d{2,}", r"\1.N"),
    (r"127\.0\.0\.1:\d+/\d+", "ADDR"),
    (r"\b[0-9a-f]{12,16}\b", "HANDLE"),
    (r"(cookie|handle|expiration|watcher)([=\":\s]+)\d+", r"\1\2N"),
    (r"\.\d{10}\b", ".NONCE"),
    (r"\bpg \d+\.", "pg POOL."),
    (r"Removed \d+ objects", "Removed N objects"),
    (r"^(device_health_metrics|rbd|beside)\n", ""),
    # A client of Ceph that ends sometimes says so.
    (r".* monclient: get_auth_request but no auth handler is set up\n", ""),
]
# Command lines whose numbers are measurements, or what stores take up.
MEASURED = ("bench", "df", "-f json df", "-f xml df")
# Those that print ids throughout.
LENGTH_ONLY = ("export",)


def normal(line, text):
    for pattern, stands in OWN:
        text = re.sub(pattern, stands, text, flags=re.MULTILINE)
    if line.startswith(LENGTH_ONLY):
        return len(text)
    if line.startswith(MEASURED):
        # What the numbers are of must be the same.
        text = re.sub(r"[\d.]+( ?[KMGT]i?B?)?", "N", text)
        lines = [re.sub(r"\s+", " ", row).strip() for row in text.splitlines()]
        return sorted(set(lines))
    return text


def run(cluster, line, folder, pgid):
    words = [{"FILE": f"{folder}/file", "OUT": f"{folder}/out", "PGID": pgid}.get(w, w)
             for w in line.split()]
    pool = [] if any(w in ("-p", "no-such-pool") for w in words) else ["-p", POOL]
    try:
        done = subprocess.run(["rados", *pool, *words], env=cluster.env, capture_output=True,
                              text=True, errors="replace", timeout=SECONDS, cwd=folder,
                              stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return "no end", "", ""
    parts = [text.replace(str(folder), "FOLDER") for text in (done.stdout, done.stderr)]
    return done.returncode, *(normal(line, text) for text in parts)


def compare(ours, theirs):
    """`ours`, `theirs`: clusters that run. Whether all was the same."""
    kinds = Kinds("the tool `rados`")
    with tempfile.TemporaryDirectory(dir=ours.folder) as folder:
        sides = []
        for cluster in (ours, theirs):
            own = pathlib.Path(folder) / cluster.name
            own.mkdir()
            (own / "file").write_bytes(bytes(range(250)) * 40)
            for pool in (POOL, f"{POOL}-2"):
                cluster.make_pool(pool, 1, 2, "test")
            listed = cluster.ceph("pg", "ls-by-pool", POOL, "-f", "json")
            sides.append((cluster, own, re.search(r'"pgid":"([^"]+)"', listed)[1]))
        for line in LINES:
            kinds.same(line, [], *(run(cluster, line, *rest) for cluster, *rest in sides))
    return kinds.show()
