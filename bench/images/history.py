"""Random histories: calls of librbd on a few images, one after the other, mostly sensible ones.

What a call did decides what is called next (an image that was made is opened), so a seed gives the
same history again as long as the answers are the same.
"""

import random

CALLS = 45
IMAGES = ["a", "b", "c", "d"]
SNAPS = ["s", "t", "u"]
GROUPS = ["g", "h"]
HANDLES = ["h1", "h2", "h3"]
NAMESPACES = ["", "n"]
ODD_NAMES = ["", "x/y", "x@y", "/", "@", "a" * 300, "a" * 5000, "ä", " ", "a b", ".", "-x"]
LAYERING, STRIPING, EXCLUSIVE, MAP, DIFF, FLATTEN, JOURNAL, DATA = (1 << n for n in range(8))
FEATURES = [0, LAYERING, LAYERING | EXCLUSIVE, LAYERING | EXCLUSIVE | MAP,
            LAYERING | EXCLUSIVE | MAP | DIFF, 61, 61, 61, 61, EXCLUSIVE | MAP | DIFF,
            LAYERING | FLATTEN, LAYERING | JOURNAL | EXCLUSIVE]
ODD_FEATURES = [MAP, DIFF, JOURNAL, EXCLUSIVE | DIFF, 1 << 8, 1 << 9, 1 << 10, 1 << 20, 1 << 63,
                STRIPING, LAYERING | STRIPING | EXCLUSIVE]
ORDERS = [12, 13, 16, 16, 18, 20, 22]
ODD_ORDERS = [0, 1, 11, 26, 30, 64]
KIB, MIB = 1 << 10, 1 << 20
SIZES = [0, 1, 4 * KIB, 100_000, 256 * KIB, MIB, MIB + 512, 3 * MIB]
ODD_SIZES = [1 << 28]
# These are refused to images with an object map. Others that large can be made, and copying or removing
# one takes days.
HUGE_SIZES = [1 << 62, (1 << 64) - 1]
KEYS = ["k", "l", "conf_rbd_cache", "conf_rbd_clone_copy_on_read", "x" * 200]
CONF_KEYS = ["rbd_cache", "rbd_qos_iops_limit", "rbd_default_features", "nonsense", ""]
CONF_VALUES = ["true", "10", "nonsense", ""]


class History:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.left = CALLS
        # What there is, as far as it was seen: (namespace, name) -> names of snapshots.
        self.images = {}
        self.open = {}
        self.groups = set()
        self.has_namespace = False
        self.queued = []
        for name, features in (("a", 61), ("b", self.pick(FEATURES))):
            self.queued.append(self.on_rbd("create", self.io(""), name, self.pick(SIZES[3:]),
                                           features=features, order=self.pick(ORDERS),
                                           told=("made", "", name)))

    # ---- one call after the other

    def next(self):
        """The next call, or none."""
        if self.queued:
            return self.queued.pop(0)
        if self.left == 0:
            return None
        self.left -= 1
        [make] = self.rng.choices([make for _, make in WEIGHTS], [weight for weight, _ in WEIGHTS])
        return make(self)

    def saw(self, call, answer):
        """What came of it, so that what follows makes sense."""
        if "value" not in answer:
            return
        told = call.get("told")
        if told:
            getattr(self, "told_" + told[0])(*told[1:])

    def told_made(self, nspace, name):
        self.images[nspace, name] = set()
        if self.often(0.8):
            self.queued.insert(0, opening(self, nspace, name))

    def told_gone(self, nspace, name):
        self.images.pop((nspace, name), None)

    def told_renamed(self, nspace, name, to):
        self.images[nspace, to] = self.images.pop((nspace, name), set())

    def told_opened(self, handle, nspace, name):
        self.open[handle] = (nspace, name)

    def told_closed(self, handle):
        self.open.pop(handle, None)

    def told_snap(self, handle, snap):
        self.images.setdefault(self.open.get(handle), set()).add(snap)

    def told_snap_gone(self, handle, snap):
        self.images.setdefault(self.open.get(handle), set()).discard(snap)

    def told_group(self, name):
        self.groups.add(name)

    def told_namespace(self):
        self.has_namespace = True

    # ---- what calls are made of

    def often(self, share=0.9):
        return self.rng.random() < share

    def pick(self, sensible, odd=()):
        return self.rng.choice(odd if odd and not self.often(0.93) else sensible)

    def client(self):
        return self.pick(["a", "a", "b"])

    def nspace(self):
        return self.pick(["", "", "", "n"]) if self.has_namespace else ""

    def image(self):
        """(namespace, name) of an image that is there, mostly."""
        if self.images and self.often():
            return self.pick(sorted(self.images))
        return self.nspace(), self.pick(IMAGES, ODD_NAMES)

    def new_image(self):
        return self.nspace(), self.pick(IMAGES, ODD_NAMES)

    def handle(self):
        return self.pick(sorted(self.open)) if self.open and self.often(0.97) else \
            self.pick(HANDLES)

    def snap(self, handle=None, image=None):
        image = image or self.open.get(handle)
        there = sorted(self.images.get(image, ()))
        return self.pick(there) if there and self.often(0.85) else \
            self.pick(SNAPS, ODD_NAMES + ["nothing"])

    def io(self, nspace, client="a", pool=0):
        return {"$io": [client, nspace, pool]}

    def features(self):
        return self.pick(FEATURES, ODD_FEATURES)

    def span(self):
        at = self.pick([0, 0, 512, 4096, 65536 - 100, self.rng.randrange(MIB), 999_999],
                       [3 * MIB, 1 << 40, (1 << 64) - 1])
        length = self.pick([1, 512, 4096, 5000, 65536, 200_000], [0, 4 * MIB, 1 << 33])
        return at, length

    def layout(self):
        kw = {"features": self.features()}
        if self.often(0.8):
            kw["order"] = self.pick(ORDERS, ODD_ORDERS)
        if not self.often(0.8):
            kw["stripe_unit"] = self.pick([4096, 8192, 65536], [0, 1, 513, 1 << 30])
            kw["stripe_count"] = self.pick([1, 2, 3, 16], [0, 1 << 40])
        if not self.often(0.85):
            kw["data_pool"] = self.pick(["DATA"], ["nothing", ""])
        return kw

    def on_rbd(self, call, *args, told=None, **kw):
        return {"on": "rbd", "call": call, "args": list(args), "kw": kw, "told": told}

    def on_image(self, call, *args, handle=None, told=None, **kw):
        handle = handle or self.handle()
        return {"on": handle, "call": call, "args": list(args), "kw": kw, "told": told}

    def player(self, call, *args, told=None):
        return {"on": "player", "call": call, "args": list(args), "told": told}


# ---- images and what is in them

def create(h):
    nspace, name = h.new_image()
    kw = h.layout()
    if not h.often(0.97):
        kw["old_format"] = True
    size = h.pick(SIZES, HUGE_SIZES if kw["features"] & MAP else ODD_SIZES)
    return h.on_rbd("create", h.io(nspace), name, size, told=("made", nspace, name), **kw)


def opening(h, nspace, name, **kw):
    handle = h.pick(HANDLES)
    return h.player("open", handle, h.client(), nspace, name, kw,
                    told=("opened", handle, nspace, name))


def open_image(h):
    nspace, name = h.image()
    how = h.rng.random()
    if how < 0.2:
        return opening(h, nspace, name, read_only=True)
    if how < 0.3:
        return opening(h, nspace, name, image_id={"$id": ["a", nspace, name]})
    if how < 0.4:
        return opening(h, nspace, name, snapshot=h.snap(image=(nspace, name)))
    if how < 0.5:
        return opening(h, nspace, name, snapshot=[h.snap(image=(nspace, name))])
    return opening(h, nspace, name)


def close(h):
    handle = h.handle()
    return h.player("close", handle, told=("closed", handle))


def write(h):
    at, length = h.span()
    length = min(length, 4 * MIB)
    seed = h.rng.randrange(1000) if h.often(0.85) else None
    data = {"$data": [seed, length]}
    if h.often(0.8):
        return h.on_image("write", data, at)
    return h.on_image("aio_write", data, at)


def read(h):
    at, length = h.span()
    return h.on_image(h.pick(["read", "aio_read"]), at, min(length, 4 * MIB))


def discard(h):
    return h.on_image(h.pick(["discard", "aio_discard"]), *h.span())


def write_zeroes(h):
    at, length = h.span()
    call = h.pick(["write_zeroes", "aio_write_zeroes"])
    flags = [h.pick([0, 1], [2])]
    return h.on_image(call, at, min(length, 4 * MIB), *flags)


def by_c(h):
    _, name = h.image()
    at, length = h.span()
    length = min(length, MIB)
    if h.often(0.5):
        pattern = h.pick([512, 4096, 1], [0, 7])
        return {"on": "c", "call": "write_same",
                "args": [name, at, length, h.rng.randrange(9), pattern]}
    return {"on": "c", "call": "compare_and_write",
            "args": [name, at, h.pick([512, 4096, length]), h.pick([None, 1, 2]), 3]}


def resize(h):
    kw = {} if h.often(0.6) else {"allow_shrink": h.pick([True, False])}
    return h.on_image("resize", h.pick(SIZES, ODD_SIZES), **kw)


def about(h):
    call = h.pick(["size", "stat", "features", "op_features", "flags", "overlap", "get_name", "id",
                   "list_snaps", "parent_info", "parent_id", "get_parent_image_spec", "list_lockers",
                   "list_children", "list_children2", "list_descendants", "metadata_list", "group",
                   "stripe_unit", "stripe_count", "data_pool_id", "old_format", "create_timestamp",
                   "access_timestamp", "modify_timestamp", "is_exclusive_lock_owner",
                   "lock_get_owners", "get_snap_limit", "flush", "aio_flush", "invalidate_cache",
                   "watchers_list", "block_name_prefix", "migration_source_spec"])
    return h.on_image(call)


def change(h):
    kind = h.rng.random()
    if kind < 0.5:
        features = h.pick([EXCLUSIVE, MAP, DIFF, MAP | DIFF, EXCLUSIVE | MAP | DIFF, JOURNAL,
                           FLATTEN], ODD_FEATURES + [LAYERING, DATA, 0])
        return h.on_image("update_features", features, h.often(0.5))
    if kind < 0.65:
        return h.on_image("rebuild_object_map")
    if kind < 0.85:
        return h.on_image("sparsify", h.pick([4096, 65536], [0, 1, 4095, 1 << 30]))
    return h.on_image("flatten")


def rename(h):
    nspace, name = h.image()
    to = h.pick(IMAGES, ODD_NAMES)
    return h.on_rbd("rename", h.io(nspace), name, to, told=("renamed", nspace, name, to))


def remove(h):
    nspace, name = h.image()
    for handle in [k for k, v in h.open.items() if v == (nspace, name) and h.often(0.7)]:
        h.queued.append(h.player("close", handle, told=("closed", handle)))
    h.queued.append(h.on_rbd("remove", h.io(nspace), name, told=("gone", nspace, name)))
    return h.queued.pop(0)


# ---- snapshots, clones, copies

def snap_create(h):
    handle, snap = h.handle(), h.pick(SNAPS, ODD_NAMES)
    flags = [] if h.often(0.7) else [h.pick([0, 1, 2], [3, 4, 8])]
    return h.on_image("create_snap", snap, *flags, handle=handle, told=("snap", handle, snap))


def snap_change(h):
    handle = h.handle()
    snap = h.snap(handle)
    kind = h.rng.randrange(11)
    calls = {
        0: lambda: h.on_image("remove_snap", snap, handle=handle, told=("snap_gone", handle, snap)),
        1: lambda: h.on_image("remove_snap2", snap, h.pick([0, 1, 2, 4, 7], [8]), handle=handle),
        2: lambda: h.on_image("remove_snap_by_id", {"$snap": [handle, snap]}, handle=handle),
        3: lambda: h.on_image("rename_snap", snap, h.pick(SNAPS, ODD_NAMES), handle=handle),
        4: lambda: h.on_image("protect_snap", snap, handle=handle),
        5: lambda: h.on_image("unprotect_snap", snap, handle=handle),
        6: lambda: h.on_image("rollback_to_snap", snap, handle=handle),
        7: lambda: h.on_image("set_snap", h.pick([snap, None]), handle=handle),
        8: lambda: h.on_image("set_snap_limit", h.pick([0, 1, 2, 3, 1000]), handle=handle),
        9: lambda: h.on_image("remove_snap_limit", handle=handle),
        10: lambda: h.on_image("set_snap_by_id", {"$snap": [handle, snap]}, handle=handle),
    }
    return calls[kind]()


def snap_about(h):
    handle = h.handle()
    snap = h.snap(handle)
    call = h.pick(["is_protected_snap", "snap_exists", "snap_get_id", "get_snap_timestamp",
                   "snap_get_name", "snap_get_namespace_type", "snap_get_group_namespace",
                   "snap_get_trash_namespace", "snap_get_mirror_namespace"])
    by_name = call in ("is_protected_snap", "snap_exists", "snap_get_id")
    kind = "$snap_there" if call == "snap_get_name" else "$snap"
    return h.on_image(call, snap if by_name else {kind: [handle, snap]}, handle=handle)


def clone(h):
    nspace, name = h.image()
    child_nspace, child = h.new_image()
    snap = h.snap(image=(nspace, name))
    handles = [k for k, v in h.open.items() if v == (nspace, name)]
    if handles and h.often(0.6):
        # From a snapshot that is surely there, and protected.
        snap, on = h.pick(SNAPS), {"handle": handles[0]}
        h.queued += [h.on_image("create_snap", snap, told=("snap", handles[0], snap), **on),
                     h.on_image("protect_snap", snap, **on)]
    kw = h.layout() if h.often(0.5) else {}
    h.queued.append(h.on_rbd("clone", h.io(nspace), name, snap, h.io(child_nspace), child,
                             told=("made", child_nspace, child), **kw))
    return h.queued.pop(0)


def clone_format(h):
    return h.player("conf", "a", "rbd_default_clone_format", h.pick(["1", "2", "auto"]))


def copy(h):
    nspace, name = h.new_image()
    kw = h.layout() if h.often(0.3) else {}
    return h.on_image(h.pick(["copy", "deep_copy"]), h.io(nspace), name,
                      told=("made", nspace, name), **kw)


def diff(h):
    handle = h.handle()
    since = h.snap(handle) if h.often(0.5) else None
    kw = {} if h.often(0.5) else {"include_parent": h.often(0.5), "whole_object": h.often(0.5)}
    at, length = h.pick([(0, 3 * MIB), (0, 100_000), h.span()])
    return {"on": handle, "call": "diff_iterate", "args": [at, length, since], "kw": kw}


# ---- metadata, settings, locks

def metadata(h):
    key = h.pick(KEYS, ["", "rbd_x"])
    value = h.pick(["v", "w" * 100], ["", "v" * 5000])
    if h.often(0.7):
        return h.on_image(*h.pick([("metadata_set", key, value), ("metadata_get", key),
                                   ("metadata_remove", key)]))
    io = h.io(h.nspace())
    return h.on_rbd(*h.pick([("pool_metadata_set", io, key, value), ("pool_metadata_get", io, key),
                             ("pool_metadata_remove", io, key), ("pool_metadata_list", io)]))


def config(h):
    key, value, io = h.pick(CONF_KEYS), h.pick(CONF_VALUES), h.io(h.nspace())
    if h.often(0.6):
        return h.on_image(*h.pick([("config_set", key, value), ("config_get", key),
                                   ("config_remove", key), ("config_list",)]))
    return h.on_rbd(*h.pick([("config_set", io, key, value), ("config_get", io, key),
                             ("config_remove", io, key), ("config_list", io)]))


def lock(h):
    cookie = h.pick(["me", "you"], ["", "c" * 300])
    return h.on_image(*h.pick([
        ("lock_exclusive", cookie), ("lock_shared", cookie, h.pick(["tag", "other"], [""])),
        ("unlock", cookie), ("break_lock", "client.1", cookie), ("list_lockers",),
        ("lock_acquire", h.pick([0], [1, 7])), ("lock_release",),
        ("lock_break", h.pick([0], [1]), h.pick(["nobody", ""])), ("is_exclusive_lock_owner",),
        ("lock_get_owners",)]))


# ---- trash, groups, namespaces, pools

def trash(h):
    nspace, name = h.image()
    io = h.io(nspace)
    image_id = {"$id": ["a", nspace, name]} if h.often(0.95) else h.pick(["", "1/2", "zz"])
    to = h.pick(IMAGES, ODD_NAMES)
    return h.pick([
        lambda: h.on_rbd("trash_move", io, name, h.pick([0, 1000], [1 << 40]),
                         told=("gone", nspace, name)),
        lambda: h.on_rbd("trash_list", io),
        lambda: h.on_rbd("trash_get", io, image_id),
        lambda: h.on_rbd("trash_restore", io, image_id, to, told=("made", nspace, to)),
        lambda: h.on_rbd("trash_remove", io, image_id, h.often(0.5)),
        lambda: h.on_rbd("trash_purge", io, *h.pick(
            [[], [{"$time": -100}], [{"$time": 2000}]], [[None, 0.5]])),
    ])()


def in_trash(h):
    """Restores or removes what was moved there under its name."""
    nspace, name = h.nspace(), h.pick(IMAGES)
    image_id = {"$id": ["a", nspace, name]}
    if h.often(0.5):
        to = h.pick(IMAGES)
        return h.on_rbd("trash_restore", h.io(nspace), image_id, to, told=("made", nspace, to))
    return h.on_rbd("trash_remove", h.io(nspace), image_id, h.often(0.5))


def group(h):
    name = h.pick(sorted(h.groups)) if h.groups and h.often() else h.pick(GROUPS, ODD_NAMES)
    io = h.io("")
    if not h.groups or not h.often(0.8):
        return h.pick([
            lambda: h.on_rbd("group_create", io, name, told=("group", name)),
            lambda: h.on_rbd("group_create", io, name, told=("group", name)),
            lambda: h.on_rbd("group_list", io),
            lambda: h.on_rbd("group_remove", io, name),
            lambda: h.on_rbd("group_rename", io, name, h.pick(GROUPS, ODD_NAMES)),
        ])()
    nspace, image = h.image()
    snap, other = h.pick(SNAPS, ODD_NAMES), h.pick(SNAPS, ODD_NAMES)
    call = h.pick([
        ("add_image", h.io(nspace), image), ("add_image", h.io(nspace), image),
        ("add_image", h.io(nspace), image), ("remove_image", h.io(nspace), image),
        ("list_images",), ("create_snap", snap), ("create_snap", snap),
        ("create_snap", snap, h.pick([1, 2], [4])), ("remove_snap", snap),
        ("rename_snap", snap, other), ("rollback_to_snap", snap), ("list_snaps",)])
    return {"on": "group", "group": ["a", "", name], "call": call[0], "args": list(call[1:])}


def namespace(h):
    name, io = h.pick(["n", "n", "m"], ODD_NAMES), h.io("")
    return h.pick([
        lambda: h.on_rbd("namespace_create", io, name,
                         told=("namespace",) if name == "n" else None),
        lambda: h.on_rbd("namespace_exists", io, name),
        lambda: h.on_rbd("namespace_list", io),
        lambda: h.on_rbd("namespace_remove", io, name),
    ])()


def pool(h):
    io = h.io(h.nspace())
    return h.on_rbd(*h.pick([("pool_init", io, h.often(0.5)), ("pool_stats_get", io),
                             ("list2", io)]))


# ---- migration, mirroring, tasks

def migration(h):
    nspace, name = h.image()
    to = (nspace, name) if h.often(0.5) else h.new_image()
    for handle in [k for k, v in h.open.items() if v == (nspace, name) and h.often(0.9)]:
        h.queued.append(h.player("close", handle, told=("closed", handle)))
    kw = h.layout() if h.often(0.3) else {}
    io, target = h.io(nspace), h.io(to[0])
    h.queued.append(h.on_rbd("migration_prepare", io, name, target, to[1], told=("made", *to),
                             **kw))
    for call in h.pick([["migration_status", "migration_execute", "migration_commit"],
                        ["migration_execute", "migration_abort"], ["migration_abort"],
                        ["migration_commit"], []]):
        if h.often(0.3):
            h.queued.append(opening(h, *to))
            h.queued.append(h.on_image("write", {"$data": [5, 5000]}, 1000))
            h.queued.append(h.on_image("read", 0, 100_000))
            h.queued.append(close(h))
        h.queued.append(h.on_rbd(call, target, to[1]))
    return h.queued.pop(0)


def mirror(h):
    io = h.io(h.nspace())
    if h.often(0.5):
        return h.on_image(*h.pick([
            ("mirror_image_enable", h.pick([0, 1], [2])), ("mirror_image_enable", 1),
            ("mirror_image_disable", h.often(0.5)), ("mirror_image_promote", h.often(0.5)),
            ("mirror_image_demote",), ("mirror_image_resync",), ("mirror_image_get_info",),
            ("mirror_image_get_mode",), ("mirror_image_get_status",),
            ("mirror_image_create_snapshot",), ("mirror_image_get_instance_id",)]))
    return h.on_rbd(*h.pick([
        ("mirror_mode_get", io), ("mirror_mode_set", io, h.pick([1, 2], [0, 3])),
        ("mirror_mode_set", io, h.pick([1, 2, 0])), ("mirror_uuid_get", io),
        ("mirror_site_name_get", {"$cluster": "a"}),
        ("mirror_peer_add", io, h.pick(["site", "other"], [""]), "client.x"),
        ("mirror_peer_add", io, "site", "client.x", h.pick([0, 1, 2], [7])),
        ("mirror_peer_list", io), ("mirror_peer_remove", io, "nobody"),
        ("mirror_peer_bootstrap_create", io),
        ("mirror_peer_bootstrap_import", io, 0, h.pick(["", "nonsense", "e30="])),
        ("mirror_image_status_list", io), ("mirror_image_status_summary", io),
        ("mirror_image_info_list", io), ("mirror_image_instance_id_list", io)]))


def task(h):
    nspace, name = h.image()
    spec = "/".join(word for word in ("POOL", nspace, name) if word)
    odd = h.pick(["", "/", name, "POOL/", "nothing/a", spec + "@s", spec + "/x/y"])
    what = h.pick(["flatten", "remove", "trash remove"])
    if not h.often(0.8):
        # Loligo refuses what Ceph does with images that migrate.
        what, spec = h.pick(["migration execute", "migration commit", "migration abort"]), odd
    elif not h.often(0.8):
        spec = odd
    key = "image_id_spec" if what == "trash remove" else "image_spec"
    for handle in [k for k, v in h.open.items() if v == (nspace, name) and h.often(0.95)]:
        h.queued.append(h.player("close", handle, told=("closed", handle)))
    h.queued += [h.player("mgr", {"prefix": f"rbd task add {what}", key: spec}),
                 h.player("tasks_end")]
    return h.queued.pop(0)


WEIGHTS = [
    (9, create), (7, open_image), (2, close), (14, write), (6, read), (5, discard),
    (3, write_zeroes), (2, by_c), (5, resize), (6, about), (4, change), (2, rename), (3, remove),
    (9, snap_create), (9, snap_change), (4, snap_about), (6, clone), (1, clone_format), (3, copy),
    (5, diff), (3, metadata), (2, config), (4, lock), (4, trash), (2, in_trash), (7, group),
    (2, namespace), (1, pool), (3, migration), (4, mirror), (2, task),
]
