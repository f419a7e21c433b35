"""Random calls of librados to both clusters."""

import random
import threading

import rados

from kinds import Kinds

# Calls of a history.
CALLS = 40
# Longest wait for an answer that comes by itself (a notification).
WAIT_SECONDS = 20

NAMES = ["a", "b", "c"]
KEYS = ["k", "l", "m", "n"]
SPACES = ["", "s", "t"]


def compare(first, seeds, ours, theirs):
    """`ours`, `theirs`: clusters that run. Whether all was the same."""
    kinds = Kinds("librados")
    sides = [Side(cluster) for cluster in (ours, theirs)]
    try:
        for seed in range(first, first + seeds):
            history(seed, sides, kinds)
    finally:
        for side in sides:
            side.close()
    return kinds.show()


def history(seed, sides, kinds):
    r = random.Random(seed)
    for side in sides:
        side.begin(f"beside-{seed}")
    said = [f"seed {seed}"]
    # A pool has snapshots of its own, or those of its clients; either refuses the other.
    seldom = OF_CLIENTS if seed % 2 else OF_POOL
    for _ in range(CALLS):
        call = r.choices(CALLS_OF, WEIGHTS)[0]
        if call in seldom and r.random() < 0.9:
            continue
        # The same for both.
        own = r.randrange(1 << 60)
        shown, answers = [], []
        for side in sides:
            side.shown = []
            answers.append(side.ask(call, random.Random(own)))
            shown = side.shown
        said.append(f"{call.__name__}{tuple(shown)} -> {str(answers[0])[:80]}")
        if not kinds.same(call.__name__, said, *answers):
            break
        answers = [side.ask(everything, None) for side in sides]
        if not kinds.same(f"{call.__name__}, afterwards", said, *answers):
            break
    for side in sides:
        side.end()


class Side:
    """One of the two clusters."""

    def __init__(self, cluster):
        self.cluster = rados.Rados(conffile=str(cluster.folder / "ceph.conf"))
        self.cluster.connect(timeout=30)
        self.shown = []
        self.pools = {}

    def close(self):
        self.cluster.shutdown()

    def begin(self, pool):
        if self.cluster.pool_exists(pool):
            self.cluster.delete_pool(pool)
        self.pool = pool
        self.cluster.create_pool(pool)
        self.io = self.cluster.open_ioctx(pool)
        self.io.application_enable("test")
        # Ids of snapshots, by their order.
        self.snaps = []
        self.watches = []
        self.heard = []

    def end(self):
        for watch in self.watches:
            watch.close()
        self.io.close()
        self.cluster.delete_pool(self.pool)

    def ask(self, call, r):
        try:
            return call(self, r)
        except rados.Error as e:
            return f"{type(e).__name__} {e.errno}"
        except (AssertionError, KeyError, TypeError, ValueError, OverflowError) as e:
            return f"{type(e).__name__} {e}"

    def snap(self, r):
        if not self.snaps or r.random() < 0.1:
            return self.say(r.choice([0, 1, 77777, (1 << 64) - 2]))
        n = r.randrange(len(self.snaps))
        self.shown.append(f"snap #{n}")
        return self.snaps[n]

    def say(self, value):
        self.shown.append(value if len(repr(value)) < 60 else f"{repr(value)[:50]}…")
        return value

    def name(self, r):
        return self.say("" if r.random() < 0.02 else r.choice(NAMES))

    def data(self, r):
        n = r.choice([0, 1, 10, 4096, 5000, 70000])
        return self.say(bytes(r.choices(b"\0ab", k=n)))

    def offset(self, r):
        return self.say(r.choice([0, 0, 1, 100, 4096, 9000, 1 << 27, (1 << 63) - 10, 1 << 63]))

    def length(self, r):
        return self.say(r.choice([0, 1, 10, 4096, 100000]))

    def key(self, r):
        return self.say("" if r.random() < 0.04 else r.choice(KEYS))


# What a name, a number, a text is: drawn in the order of the arguments.

def write(s, r):
    return s.io.write(s.name(r), s.data(r), s.offset(r))


def write_full(s, r):
    return s.io.write_full(s.name(r), s.data(r))


def append(s, r):
    return s.io.append(s.name(r), s.data(r))


def writesame(s, r):
    return s.io.writesame(s.name(r), s.data(r), s.length(r), s.offset(r))


def read(s, r):
    return s.io.read(s.name(r), s.length(r), s.offset(r))


def cmpext(s, r):
    return s.io.cmpext(s.name(r), s.data(r), s.offset(r))


def remove(s, r):
    return s.io.remove_object(s.name(r))


def trunc(s, r):
    return s.io.trunc(s.name(r), s.offset(r))


def stat(s, r):
    return s.io.stat(s.name(r))[0]


def attr(s, r):
    # Without a name Ceph shows and overwrites its own record of the object.
    return s.say(r.choice(KEYS))


def set_xattr(s, r):
    return s.io.set_xattr(s.name(r), attr(s, r), s.data(r))


def get_xattr(s, r):
    return s.io.get_xattr(s.name(r), attr(s, r))


def rm_xattr(s, r):
    return s.io.rm_xattr(s.name(r), attr(s, r))


def set_omap(s, r):
    with rados.WriteOpCtx() as op:
        keys = r.sample(KEYS, 2)
        s.io.set_omap(op, tuple(s.say(keys)), (s.data(r), s.data(r)))
        return s.io.operate_write_op(op, s.name(r))


def remove_omap(s, r):
    with rados.WriteOpCtx() as op:
        which = s.say(r.randrange(3))
        if which == 0:
            s.io.clear_omap(op)
        elif which == 1:
            s.io.remove_omap_keys(op, (s.key(r), s.key(r)))
        else:
            s.io.remove_omap_range2(op, s.key(r), s.key(r))
        return s.io.operate_write_op(op, s.name(r))


def omap(s, r):
    with rados.ReadOpCtx() as op:
        which = s.say(r.randrange(3))
        if which == 0:
            values, code = s.io.get_omap_vals(op, s.key(r), r.choice(["", "", "k"]), r.choice([0, 1, 9]))
        elif which == 1:
            values, code = s.io.get_omap_keys(op, s.key(r), r.choice([0, 1, 9]))
        else:
            values, code = s.io.get_omap_vals_by_keys(op, (s.key(r), s.key(r)))
        s.io.operate_read_op(op, s.name(r))
        return list(values), code


def several(s, r):
    """A compound operation."""
    with rados.WriteOpCtx() as op:
        for _ in range(r.randrange(1, 4)):
            which = s.say(r.choice(["new", "create", "remove", "write", "write_full", "append", "zero",
                                    "truncate", "set_xattr", "rm_xattr", "assert", "cmpext",
                                    "omap_cmp", "execute", "writesame"]))
            if which == "new":
                op.new(s.say(r.choice([0, rados.LIBRADOS_CREATE_EXCLUSIVE])))
            elif which == "create":
                op.new()
            elif which == "remove":
                op.remove()
            elif which in ("write", "cmpext"):
                getattr(op, which)(s.data(r), s.offset(r))
            elif which in ("write_full", "append"):
                getattr(op, which)(s.data(r))
            elif which == "zero":
                # Of 0 bytes it ends an OSD of Ceph (Python passes one for the other).
                op.zero(max(1, s.offset(r)), max(1, s.length(r)))
            elif which == "truncate":
                op.truncate(s.offset(r))
            elif which == "set_xattr":
                op.set_xattr(attr(s, r), s.data(r))
            elif which == "rm_xattr":
                op.rm_xattr(attr(s, r))
            elif which == "assert":
                op.assert_version(s.say(r.choice([1 << 40])))
            elif which == "omap_cmp":
                op.omap_cmp(s.key(r), s.say(r.choice(["ab", ""])), s.say(r.randrange(1, 7)))
            elif which == "execute":
                op.execute(s.say(r.choice(["hello", "no"])), s.say(r.choice(["record_hello", "no"])),
                           s.data(r))
            else:
                op.writesame(s.data(r), s.length(r), s.offset(r))
        return s.io.operate_write_op(op, s.name(r))


def execute(s, r):
    cls, method = s.say(r.choice([("hello", "say_hello"), ("hello", "record_hello"),
                                  ("hello", "replay"), ("hello", "no"), ("no", "no"),
                                  ("lock", "get_info"), ("lock", "list_locks"),
                                  ("hello", "turn_it_to_11"), ("version", "read"),
                                  ("numops", "add"), ("refcount", "read")]))
    return s.io.execute(s.name(r), cls, method, s.data(r), s.say(r.choice([8192, 3, 100])))


def lock(s, r):
    name, lock, cookie, tag = s.name(r), s.key(r), s.key(r), s.say(r.choice(["", "tag"]))
    which = s.say(r.randrange(3))
    flags = s.say(r.choice([0, 0, 1, 2]))
    if which == 0:
        return s.io.lock_exclusive(name, lock, cookie, "why", None, flags)
    if which == 1:
        return s.io.lock_shared(name, lock, cookie, tag, "why", None, flags)
    return s.io.unlock(name, lock, cookie)


def set_namespace(s, r):
    s.io.set_namespace(s.say(r.choice(SPACES)))


def set_key(s, r):
    s.io.set_locator_key(s.say(r.choice(["", "", "x"])))


def list_objects(s, r):
    before = s.io.nspace
    s.io.set_namespace(s.say(r.choice([*SPACES, rados.LIBRADOS_ALL_NSPACES])))
    try:
        return sorted((o.nspace, o.key, o.locator_key or "") for o in s.io.list_objects())
    finally:
        s.io.set_namespace(before)


def create_snap(s, r):
    s.io.create_snap(s.key(r))


def remove_snap(s, r):
    s.io.remove_snap(s.key(r))


def lookup_snap(s, r):
    return s.io.lookup_snap(s.key(r)).name


def list_snaps(s, _):
    return [snap.name for snap in s.io.list_snaps()]


def rollback(s, r):
    s.io.snap_rollback(s.name(r), s.key(r))


def read_at(s, r):
    """From a snapshot of the pool, or one of our own."""
    snap = s.snap(r) if s.snaps else s.io.lookup_snap(s.key(r)).snap_id
    s.io.set_read(snap)
    try:
        return s.io.read(s.name(r), 8192)
    finally:
        s.io.set_read(rados.LIBRADOS_SNAP_HEAD)


def own_snap(s, _):
    s.snaps.append(s.io.create_self_managed_snap())


def write_at(s, r):
    """Later writes know of these snapshots."""
    n = s.say(r.randrange(len(s.snaps) + 1))
    snaps = s.snaps[:n][::-1]
    if s.say(r.random() < 0.1):
        snaps = snaps[::-1]
    s.io.set_self_managed_snap_write(snaps)


def remove_own_snap(s, r):
    s.io.remove_self_managed_snap(s.snap(r))


def own_rollback(s, r):
    s.io.rollback_self_managed_snap(s.name(r), s.snap(r))


def application(s, r):
    which = s.say(r.choice(["enable", "list", "metadata_get", "metadata_set", "metadata_remove",
                            "metadata_list"]))
    app = s.say(r.choice(["test", "test", "more", "", "x" * 200]))
    if which == "enable":
        return s.io.application_enable(app, s.say(r.random() < 0.5))
    if which == "list":
        return list(s.io.application_list())
    if which == "metadata_get":
        return s.io.application_metadata_get(app, s.key(r))
    if which == "metadata_set":
        return s.io.application_metadata_set(app, s.key(r), s.say(r.choice(["", "v", "v" * 200])))
    if which == "metadata_remove":
        return s.io.application_metadata_remove(app, s.key(r))
    return list(s.io.application_metadata_list(app))


def watch(s, r):
    name = s.name(r)
    number = len(s.watches)

    def hear(notify_id, notifier, watch_id, data):
        s.heard.append((number, data))
    s.watches.append(s.io.watch(name, hear))


def unwatch(s, r):
    if s.watches:
        watch = s.watches[s.say(r.randrange(len(s.watches)))]
        watch.close()


def notify(s, r):
    s.heard.clear()
    done = threading.Event()
    got = []

    def acked(_, code, acks, missed):
        got.extend([code, len(acks or []), len(missed or [])])
        done.set()
    name, text = s.name(r), s.say(r.choice(["", "hello"]))
    if r.random() < 0.5:
        return s.io.notify(name, text, 5000), sorted(s.heard)
    s.io.aio_notify(name, acked, text, 5000)
    if not done.wait(WAIT_SECONDS):
        return "no answer"
    return got, sorted(s.heard)


def pools(s, r):
    name = s.say(r.choice([s.pool + "-2", "", "x/y", ".hidden", "é"]))
    which = s.say(r.choice(["create", "delete", "exists", "lookup"]))
    if which == "create":
        return s.cluster.create_pool(name)
    if which == "delete":
        return s.cluster.delete_pool(name)
    if which == "exists":
        return s.cluster.pool_exists(name)
    return type(s.cluster.pool_lookup(name)).__name__


def alignment(s, _):
    return s.io.alignment()


def aio(s, r):
    """Completions, and what they say."""
    which = s.say(r.choice(["write", "write_full", "append", "remove", "stat", "read", "execute",
                            "setxattr", "rmxattr", "cmpext", "writesame"]))
    name = s.name(r)
    if which == "write":
        c = s.io.aio_write(name, s.data(r), s.offset(r))
    elif which in ("write_full", "append"):
        c = getattr(s.io, "aio_" + which)(name, s.data(r))
    elif which == "remove":
        c = s.io.aio_remove(name)
    elif which == "stat":
        got = []
        c = s.io.aio_stat(name, lambda _, size, mtime: got.append(size))
    elif which == "read":
        c = s.io.aio_read(name, s.length(r), s.offset(r), lambda *_: None)
    elif which == "execute":
        c = s.io.aio_execute(name, "hello", "say_hello", s.data(r), 100)
    elif which == "setxattr":
        c = s.io.aio_setxattr(name, s.key(r), s.data(r))
    elif which == "rmxattr":
        c = s.io.aio_rmxattr(name, s.key(r))
    elif which == "cmpext":
        c = s.io.aio_cmpext(name, s.data(r), s.offset(r))
    else:
        c = s.io.aio_writesame(name, s.data(r), s.length(r), s.offset(r))
    c.wait_for_complete_and_cb()
    return c.get_return_value()


def everything(s, _):
    """What has become of the objects."""
    before, key = s.io.nspace, s.io.locator_key
    found = []
    try:
        s.io.set_namespace(rados.LIBRADOS_ALL_NSPACES)
        for o in s.io.list_objects():
            found.append((o.nspace, o.key, o.locator_key or ""))
        found.sort()
        objects = []
        for space, name, where in found:
            s.io.set_namespace(space)
            s.io.set_locator_key(where)
            objects.append((space, name, where, object_of(s, name)))
        return objects
    finally:
        s.io.set_namespace(before)
        s.io.set_locator_key(key)


def told(attr, value):
    """Some hold ids and addresses."""
    return len(value) if attr.startswith("lock.") or attr == "said_by" else value


def object_of(s, name):
    try:
        size, _ = s.io.stat(name)
    except rados.Error as e:
        # Listed for its clones' sake.
        return e.errno
    data = s.io.read(name, 1 << 20)
    attrs = sorted((key, told(key, value)) for key, value in s.io.get_xattrs(name))
    with rados.ReadOpCtx() as op:
        values, _ = s.io.get_omap_vals(op, "", "", 100)
        s.io.operate_read_op(op, name)
        return size, data, attrs, list(values)


COMMON = [write, write_full, append, remove, trunc, set_xattr, set_omap, several, aio]
SOMETIMES = [writesame, read, cmpext, stat, get_xattr, rm_xattr, remove_omap, omap, execute, lock,
             set_namespace, list_objects, read_at, application, watch, unwatch, notify]
OF_POOL = [create_snap, remove_snap, lookup_snap, list_snaps, rollback]
OF_CLIENTS = [own_snap, write_at, remove_own_snap, own_rollback]
SOMETIMES += OF_POOL + OF_CLIENTS
SELDOM = [set_key, pools, alignment]
CALLS_OF = COMMON + SOMETIMES + SELDOM
WEIGHTS = [6] * len(COMMON) + [3] * len(SOMETIMES) + [1] * len(SELDOM)
