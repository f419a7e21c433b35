"""Uses images of a pool through librbd, and checks every result.

usage: librbd.py POOL   (the cluster is named by CEPH_CONF; the pool is initialised for images)
"""
import ctypes
import datetime
import errno
import os
import random
import sys
import threading

import rados
import rbd

pool = sys.argv[1]
cluster = rados.Rados(conffile="")
cluster.connect(timeout=30)
io = cluster.open_ioctx(pool)
rbds = rbd.RBD()
MIB = 1 << 20
ORDER = 20  # objects of 1 MiB: many of them at little cost
rng = random.Random(1)


def fails(code, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except KeyError:
        assert code == errno.ENOENT
        return
    except (rbd.Error, rados.Error) as e:
        assert abs(e.errno) == code, (call, e, e.errno, code)
        return
    raise AssertionError(f"{call} did not fail")


def same(got, wanted):
    assert got == wanted, f"{got} instead of {wanted}"


def section(f):
    f()
    print(f.__name__, flush=True)


def create(name, size, **kwargs):
    rbds.create(io, name, size, order=ORDER, **kwargs)
    return rbd.Image(io, name)


def noise(length):
    return rng.randbytes(length)


def all_of(image):
    return image.read(0, image.size())


def extents(image, from_snapshot=None, whole_object=False, include_parent=True):
    found = []
    image.diff_iterate(0, image.size(), from_snapshot, lambda *e: found.append(e),
                       include_parent, whole_object)
    return found


@section
def create_and_look():
    with create("looked", 10 * MIB + 512) as image:
        stat = image.stat()
        assert stat["size"] == image.size() == 10 * MIB + 512
        assert (stat["num_objs"], stat["order"], stat["obj_size"]) == (11, ORDER, MIB)
        assert stat["block_name_prefix"] == image.block_name_prefix() == f"rbd_data.{image.id()}"
        assert image.get_name() == "looked" and not image.old_format() and image.flags() == 0
        assert image.data_pool_id() == -1 or image.data_pool_id() == cluster.pool_lookup(pool)
        assert (image.stripe_unit(), image.stripe_count()) == (MIB, 1)
        now = datetime.datetime.utcnow()
        for stamp in (image.create_timestamp(), image.access_timestamp(), image.modify_timestamp()):
            assert abs((now - stamp).total_seconds()) < 120, stamp
        assert [w["cookie"] > 0 for w in image.watchers_list()] == [True]
    assert "looked" in rbds.list(io)
    assert {"id", "name"} <= set(next(iter(rbds.list2(io))))
    fails(errno.EEXIST, rbds.create, io, "looked", MIB)
    fails(errno.ENOENT, rbd.Image, io, "nosuch")
    fails(errno.ENOENT, rbd.Image, io, "looked", "nosuch")
    fails(errno.EINVAL, rbds.create, io, "", MIB)
    with rbd.Image(io, "looked") as image:
        fails(errno.EBUSY, rbds.remove, io, "looked")
        image.size()
    rbds.rename(io, "looked", "renamed")
    rbds.remove(io, "renamed")
    assert "renamed" not in rbds.list(io)


@section
def read_only():
    create("fixed", MIB).close()
    with rbd.Image(io, "fixed", read_only=True) as image:
        fails(errno.EROFS, image.write, b"x", 0)
        fails(errno.EROFS, image.resize, 2 * MIB)
        fails(errno.EROFS, image.create_snap, "s")
        assert all_of(image) == bytes(MIB)
    rbds.remove(io, "fixed")


@section
def reads_and_writes_against_a_model():
    size = 6 * MIB + 700
    model = bytearray(size)
    with create("model", size, stripe_unit=64 << 10, stripe_count=3, old_format=False,
                features=rbd.RBD_FEATURE_STRIPINGV2 | rbd.RBD_FEATURE_EXCLUSIVE_LOCK
                | rbd.RBD_FEATURE_OBJECT_MAP | rbd.RBD_FEATURE_LAYERING) as image:
        for _ in range(150):
            offset = rng.randrange(size)
            length = min(rng.choice([1, 511, 512, 4096, 70000, MIB + 3]), size - offset)
            kind = rng.randrange(5)
            if kind == 0:
                image.discard(offset, length)
                # What is not whole sectors of a discard may stay; so the model learns it.
                got = image.read(offset, length)
                zero = lambda i: got[i] == 0 or got[i] == model[offset + i]
                assert all(map(zero, range(0, length, max(1, length // 64))))
                model[offset:offset + length] = got
            elif kind == 1:
                image.write_zeroes(offset, length)
                model[offset:offset + length] = bytes(length)
            elif kind == 2:
                assert image.read(offset, length) == model[offset:offset + length]
            else:
                data = noise(length)
                assert image.write(data, offset) == length
                model[offset:offset + length] = data
        assert all_of(image) == model
        image.flush()
        image.invalidate_cache()
        assert all_of(image) == model
    rbds.remove(io, "model")


@section
def beyond_the_end():
    with create("end", MIB) as image:
        fails(errno.EINVAL, image.write, b"x", MIB)
        fails(errno.EINVAL, image.write, b"x", 1 << 62)
        fails(errno.EINVAL, image.discard, MIB + 1, 10)
        fails(errno.EINVAL, image.read, MIB + 1, 10)
        # What begins inside is cut.
        try:
            image.write(b"abc", MIB - 2)
            raise AssertionError("not cut")
        except rbd.IncompleteWriteError:
            pass
        assert image.read(MIB - 2, 100) == b"ab"
        image.resize(2 * MIB)
        assert image.read(MIB - 2, 5) == b"ab\0\0\0"
        image.resize(MIB - 1)
        image.resize(MIB)
        assert image.read(MIB - 2, 5) == b"a\0"
    rbds.remove(io, "end")


@section
def snapshots():
    with create("snaps", 4 * MIB) as image:
        old = noise(4 * MIB)
        image.write(old, 0)
        image.create_snap("one")
        image.write(bytes(MIB), MIB)
        image.create_snap("two")
        image.resize(2 * MIB)
        assert [s["name"] for s in image.list_snaps()] == ["one", "two"]
        assert [s["size"] for s in image.list_snaps()] == [4 * MIB, 4 * MIB]
        assert image.snap_exists("one") and not image.snap_exists("nosuch")
        one = image.snap_get_id("one")
        assert image.snap_get_name(one) == "one"
        stamp = image.get_snap_timestamp(one)
        assert abs((datetime.datetime.utcnow() - stamp).total_seconds()) < 120
        assert image.snap_get_namespace_type(one) == rbd.RBD_SNAP_NAMESPACE_TYPE_USER
        fails(errno.EEXIST, image.create_snap, "one")
        image.set_snap("one")
        assert all_of(image) == old
        fails(errno.EROFS, image.write, b"x", 0)
        image.set_snap(None)
        image.rename_snap("two", "zwei")
        image.protect_snap("one")
        assert image.is_protected_snap("one") and not image.is_protected_snap("zwei")
        fails(errno.EBUSY, image.remove_snap, "one")
        fails(errno.EBUSY, image.protect_snap, "one")
        image.unprotect_snap("one")
        fails(errno.EINVAL, image.unprotect_snap, "one")
        image.rollback_to_snap("one")
        assert image.size() == 4 * MIB and all_of(image) == old
        image.set_snap_limit(2)
        assert image.get_snap_limit() == 2
        fails(errno.EDQUOT, image.create_snap, "three")
        image.remove_snap_limit()
        image.remove_snap("zwei")
        image.remove_snap_by_id(one)
        fails(errno.ENOENT, image.remove_snap, "one")
        assert list(image.list_snaps()) == [] and all_of(image) == old
    rbds.remove(io, "snaps")


@section
def differences():
    for features in (rbd.RBD_FEATURE_LAYERING,
                     rbd.RBD_FEATURE_LAYERING | rbd.RBD_FEATURE_EXCLUSIVE_LOCK
                     | rbd.RBD_FEATURE_OBJECT_MAP | rbd.RBD_FEATURE_FAST_DIFF):
        with create("diffs", 8 * MIB, old_format=False, features=features) as image:
            image.write(noise(4096), 0)
            image.write(noise(4096), 3 * MIB)
            same(extents(image), [(0, 4096, True), (3 * MIB, 4096, True)])
            same(extents(image, whole_object=True), [(0, MIB, True), (3 * MIB, MIB, True)])
            image.create_snap("a")
            same(extents(image, "a"), [])
            image.write(noise(512), 5 * MIB)
            image.discard(3 * MIB, MIB)
            got = extents(image, "a", whole_object=True)
            assert [(o, exists) for o, _, exists in got] == [(3 * MIB, False), (5 * MIB, True)], got
            same([e for e in extents(image, "a") if e[2]], [(5 * MIB, 512, True)])
            image.create_snap("b")
            image.set_snap("b")
            same([e for e in extents(image, "a") if e[2]], [(5 * MIB, 512, True)])
            fails(errno.ENOENT, extents, image, "nosuch")
            image.set_snap(None)
            image.remove_snap("a")
            image.remove_snap("b")
        rbds.remove(io, "diffs")


def list_children(parent):
    parent.set_snap("s")
    children = list(parent.list_children())
    parent.set_snap(None)
    return children


def clone_of_format_1():
    cluster.conf_set("rbd_default_clone_format", "1")
    rbds.clone(io, "parent", "s", io, "one", features=rbd.RBD_FEATURE_LAYERING)


def clone_of_format_2(name):
    cluster.conf_set("rbd_default_clone_format", "2")
    rbds.clone(io, "parent", "s", io, name)
    cluster.conf_set("rbd_default_clone_format", "auto")


@section
def clones():
    content = noise(4 * MIB)
    with create("parent", 4 * MIB) as parent:
        parent.write(content, 0)
        parent.create_snap("s")
        fails(errno.EINVAL, clone_of_format_1)
        parent.protect_snap("s")
        clone_of_format_1()
        clone_of_format_2("two")
        assert sorted(name for _, name in list_children(parent)) == ["one", "two"]
        assert {c["image"] for c in parent.list_descendants()} == {"one", "two"}
        fails(errno.EBUSY, parent.unprotect_snap, "s")
    fails(errno.ENOTEMPTY, rbds.remove, io, "parent")
    for name in ("one", "two"):
        with rbd.Image(io, name) as clone:
            assert clone.parent_info() == (pool, "parent", "s")
            assert clone.get_parent_image_spec()["snap_name"] == "s"
            assert clone.overlap() == 4 * MIB and all_of(clone) == content
            own = bytearray(content)
            # Copied up; cut off from the parent; discarded over the parent's data.
            clone.write(b"own", MIB + 5)
            own[MIB + 5:MIB + 8] = b"own"
            clone.write_zeroes(2 * MIB, MIB)
            own[2 * MIB:3 * MIB] = bytes(MIB)
            assert all_of(clone) == own
            clone.resize(3 * MIB)
            clone.resize(4 * MIB)
            own[3 * MIB:] = bytes(MIB)
            assert clone.overlap() == 3 * MIB and all_of(clone) == own
            assert (0, MIB, True) in extents(clone, whole_object=True)
            assert (0, MIB, True) not in extents(clone, whole_object=True, include_parent=False)
            clone.flatten()
            fails(errno.ENOENT, clone.parent_info)
            fails(errno.EINVAL, clone.flatten)
            assert all_of(clone) == own
        rbds.remove(io, name)
    with rbd.Image(io, "parent") as parent:
        assert list_children(parent) == []
        parent.unprotect_snap("s")
        parent.remove_snap("s")
        assert all_of(parent) == content
    rbds.remove(io, "parent")


@section
def a_snapshot_waits_for_its_clones():
    with create("parent", MIB) as parent:
        parent.write(b"content", 0)
        parent.create_snap("s")
        clone_of_format_2("child")
        parent.remove_snap("s")
        [left] = parent.list_snaps()
        assert left["namespace"] == rbd.RBD_SNAP_NAMESPACE_TYPE_TRASH
        assert parent.snap_get_trash_namespace(left["id"])["original_name"] == "s"
        with rbd.Image(io, "child") as child:
            assert child.read(0, 7) == b"content"
            child.flatten()
        # The last clone takes the snapshot along.
        parent.invalidate_cache()
    with rbd.Image(io, "parent") as parent:
        assert list(parent.list_snaps()) == []
    rbds.remove(io, "child")
    rbds.remove(io, "parent")


@section
def locks():
    with create("locked", MIB) as image, rbd.Image(io, "locked") as other:
        assert list(image.lock_get_owners()) == []
        image.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
        assert image.is_exclusive_lock_owner() and not other.is_exclusive_lock_owner()
        [owner] = other.lock_get_owners()
        assert owner["mode"] == rbd.RBD_LOCK_MODE_EXCLUSIVE
        fails(errno.EROFS, other.write, b"x", 0)
        fails(errno.EROFS, other.lock_acquire, rbd.RBD_LOCK_MODE_EXCLUSIVE)
        image.lock_release()
        other.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
        other.write(b"x", 0)
        # Only an owner's lock can be broken.
        fails(errno.EBUSY, image.lock_break, rbd.RBD_LOCK_MODE_EXCLUSIVE, "client.1")
        assert image.read(0, 1) == b"x"
    rbds.remove(io, "locked")
    with create("advised", MIB, old_format=False, features=rbd.RBD_FEATURE_LAYERING) as image:
        image.lock_exclusive("me")
        fails(errno.EEXIST, image.lock_exclusive, "me")
        fails(errno.EBUSY, image.lock_exclusive, "you")
        fails(errno.EBUSY, image.lock_shared, "you", "tag")
        listed = image.list_lockers()
        assert listed["exclusive"] and [l[1] for l in listed["lockers"]] == ["me"]
        client, cookie, _ = listed["lockers"][0]
        # We would shut ourselves out.
        cluster.conf_set("rbd_blocklist_on_break_lock", "false")
        image.break_lock(client, cookie)
        fails(errno.ENOENT, image.unlock, "me")
        image.lock_shared("a", "tag")
        image.lock_shared("b", "tag")
        fails(errno.EBUSY, image.lock_shared, "c", "other tag")
        assert len(image.list_lockers()["lockers"]) == 2 and image.list_lockers()["tag"] == "tag"
        image.unlock("a")
        image.unlock("b")
        assert list(image.list_lockers()) == []
    rbds.remove(io, "advised")


@section
def two_writers():
    """Each write of both is there, though the lock moves from one to the other all the time."""
    with create("turns", MIB) as one, rbd.Image(io, "turns") as two:
        for i in range(20):
            (one, two)[i % 2].write(bytes([i + 1]) * 512, i * 512)
        assert all_of(one)[:20 * 512:512] == bytes(range(1, 21))
    rbds.remove(io, "turns")


@section
def metadata_and_settings():
    with create("meta", MIB) as image:
        image.metadata_set("k", "v")
        image.metadata_set("long", "x" * 10000)
        assert image.metadata_get("k") == "v" and len(image.metadata_get("long")) == 10000
        for i in range(150):
            image.metadata_set(f"many-{i:03}", str(i))
        assert len(list(image.metadata_list())) == 152
        image.metadata_remove("k")
        fails(errno.ENOENT, image.metadata_get, "k")
        fails(errno.ENOENT, image.metadata_remove, "k")
        image.config_set("rbd_cache", "false")
        assert image.config_get("rbd_cache") == "false"
        image.config_remove("rbd_cache")
    rbds.remove(io, "meta")
    rbds.pool_metadata_set(io, "k", "v")
    assert rbds.pool_metadata_get(io, "k") == "v"
    assert ("k", "v") in list(rbds.pool_metadata_list(io))
    rbds.pool_metadata_remove(io, "k")
    fails(errno.ENOENT, rbds.pool_metadata_get, io, "k")
    rbds.config_set(io, "rbd_cache", "false")
    assert rbds.config_get(io, "rbd_cache") == "false"
    rbds.config_remove(io, "rbd_cache")


@section
def many_at_once():
    count = 64
    data = [noise(4096 + 512 * (i % 5)) for i in range(count)]
    with create("aio", 8 * MIB) as image:
        def run(start):
            waiting, results = threading.Semaphore(0), [None] * count

            def done(i, completion, *more):
                results[i] = (completion.get_return_value(), *more)
                waiting.release()
            kept = [start(i, lambda c, *more, i=i: done(i, c, *more)) for i in range(count)]
            for _ in range(count):
                assert waiting.acquire(timeout=60)
            assert len(kept) == count
            return results

        place = lambda i: i * 100_000
        wrote = run(lambda i, f: image.aio_write(data[i], place(i), f))
        assert all(r[0] >= 0 for r in wrote), wrote
        read = run(lambda i, f: image.aio_read(place(i), len(data[i]), f))
        assert [r[1] for r in read] == data
        run(lambda i, f: image.aio_flush(f))
        zeroed = run(lambda i, f: image.aio_write_zeroes(place(i), 512, f))
        assert all(r[0] >= 0 for r in zeroed)
        dropped = run(lambda i, f: image.aio_discard(place(i) + 4096, 10, f))
        assert all(r[0] >= 0 for r in dropped)
        assert all(image.read(place(i), 4096) == bytes(512) + data[i][512:4096]
                   for i in range(count))
    rbds.remove(io, "aio")


class C:
    """What librbd's Python does not reach, through its C interface."""

    def __init__(self):
        rados_lib, self.lib = ctypes.CDLL("librados.so.2"), ctypes.CDLL("librbd.so.1")
        u64, size, ptr, text, num = (ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p,
                                     ctypes.c_char_p, ctypes.c_int)
        self.lib.rbd_writesame.argtypes = [ptr, u64, size, text, size, num]
        self.lib.rbd_writesame.restype = ctypes.c_ssize_t
        self.lib.rbd_compare_and_write.argtypes = [ptr, u64, size, text, text, ptr, num]
        self.lib.rbd_compare_and_write.restype = ctypes.c_ssize_t
        self.rados_lib, self.cluster, self.io = rados_lib, ctypes.c_void_p(), ctypes.c_void_p()
        assert rados_lib.rados_create(ctypes.byref(self.cluster), None) == 0
        conf = os.environ["CEPH_CONF"].encode()
        assert rados_lib.rados_conf_read_file(self.cluster, conf) == 0
        assert rados_lib.rados_connect(self.cluster) == 0
        assert rados_lib.rados_ioctx_create(self.cluster, pool.encode(), ctypes.byref(self.io)) == 0

    def open(self, name):
        image = ctypes.c_void_p()
        assert self.lib.rbd_open(self.io, name.encode(), ctypes.byref(image), None) == 0
        return image

    def close(self):
        self.rados_lib.rados_ioctx_destroy(self.io)
        self.rados_lib.rados_shutdown(self.cluster)


@section
def write_same_and_compare_and_write():
    create("c", 4 * MIB).close()
    c = C()
    image, mismatch = c.open("c"), ctypes.c_uint64()
    pattern = noise(512)
    length = MIB + 512
    assert c.lib.rbd_writesame(image, 512, length, pattern, 512, 0) == length
    assert c.lib.rbd_writesame(image, 0, 1000, pattern, 512, 0) == -errno.EINVAL
    cas = lambda at, size, old, new: c.lib.rbd_compare_and_write(
        image, at, size, old, new, ctypes.byref(mismatch), 0)
    new = noise(512)
    assert cas(512, 512, pattern, new) == 512
    assert cas(512, 512, pattern, new) == -errno.EILSEQ and mismatch.value == 0
    assert cas(1024, 512, pattern[:300] + b"?" * 212, new) == -errno.EILSEQ
    assert mismatch.value in range(300, 304), mismatch.value
    # Zeros where nothing was ever written.
    assert cas(3 * MIB, 512, bytes(512), new) == 512
    assert c.lib.rbd_close(image) == 0
    c.close()
    with rbd.Image(io, "c") as image:
        assert image.read(0, 2048) == bytes(512) + new + pattern * 2
        assert image.read(length, 1024) == pattern + bytes(512)
        assert image.read(3 * MIB, 513) == new + b"\0"
        image.write_zeroes(0, 2 * MIB, rbd.RBD_WRITE_ZEROES_FLAG_THICK_PROVISION)
        assert image.read(0, 2 * MIB) == bytes(2 * MIB)
    rbds.remove(io, "c")


@section
def copies():
    content = noise(3 * MIB)
    with create("source", 3 * MIB) as source:
        source.write(content, 0)
        source.create_snap("s")
        source.write(b"later", 0)
        source.copy(io, "flat")
        source.deep_copy(io, "deep")
        now = all_of(source)
    for name in ("flat", "deep"):
        with rbd.Image(io, name) as image:
            assert all_of(image) == now
            assert [s["name"] for s in image.list_snaps()] == ["s"] * (name == "deep")
    with rbd.Image(io, "deep", "s") as image:
        assert all_of(image) == content
    for name in ("flat", "deep", "source"):
        with rbd.Image(io, name) as image:
            for snap in image.list_snaps():
                image.remove_snap(snap["name"])
        rbds.remove(io, name)


@section
def sparse_and_object_maps():
    with create("sparse", 4 * MIB) as image:
        image.write(bytes(2 * MIB), 0)
        image.write(b"x", 3 * MIB)
        assert sum(e[1] for e in extents(image)) >= 2 * MIB
        image.sparsify(4096)
        same([(o, e) for o, _, e in extents(image)], [(3 * MIB, True)])
        image.update_features(rbd.RBD_FEATURE_FAST_DIFF | rbd.RBD_FEATURE_OBJECT_MAP, False)
        image.update_features(rbd.RBD_FEATURE_FAST_DIFF | rbd.RBD_FEATURE_OBJECT_MAP, True)
        assert image.flags() & rbd.RBD_FLAG_OBJECT_MAP_INVALID
        image.rebuild_object_map()
        assert image.flags() == 0
        fails(errno.EINVAL, image.update_features, rbd.RBD_FEATURE_LAYERING, True)
    rbds.remove(io, "sparse")


@section
def groups():
    for name in ("a", "b"):
        create(name, MIB).close()
    rbds.group_create(io, "g")
    fails(errno.EEXIST, rbds.group_create, io, "g")
    g = rbd.Group(io, "g")
    for name in ("a", "b"):
        g.add_image(io, name)
        g.add_image(io, name)  # again: nothing is to be done
        with rbd.Image(io, name) as image:
            assert image.group() == {"pool": cluster.pool_lookup(pool), "name": "g"}
            image.write(b"before", 0)
    assert sorted(i["name"] for i in g.list_images()) == ["a", "b"]
    g.create_snap("s")
    assert [(s["name"], s["state"]) for s in g.list_snaps()] == [
        ("s", rbd.RBD_GROUP_SNAP_STATE_COMPLETE)]
    with rbd.Image(io, "a") as image:
        [snap] = image.list_snaps()
        assert snap["namespace"] == rbd.RBD_SNAP_NAMESPACE_TYPE_GROUP
        assert image.snap_get_group_namespace(snap["id"])["name"] == "g"
        image.write(b"after!", 0)
    g.rename_snap("s", "t")
    g.rollback_to_snap("t")
    with rbd.Image(io, "a") as image:
        assert image.read(0, 6) == b"before"
    g.remove_snap("t")
    fails(errno.ENOENT, g.remove_snap, "t")
    g.remove_image(io, "a")
    rbds.group_rename(io, "g", "h")
    assert rbds.group_list(io) == ["h"]
    rbds.group_remove(io, "h")
    with rbd.Image(io, "b") as image:
        assert list(image.list_snaps()) == []
    for name in ("a", "b"):
        rbds.remove(io, name)


@section
def trash():
    with create("thrown", MIB) as image:
        image_id = image.id()
        image.write(b"kept", 0)
    rbds.trash_move(io, "thrown", 3600)
    assert rbds.list(io) == []
    [entry] = rbds.trash_list(io)
    assert (entry["id"], entry["name"], entry["source"]) == (image_id, "thrown", "USER")
    assert rbds.trash_get(io, image_id)["name"] == "thrown"
    fails(errno.EPERM, rbds.trash_remove, io, image_id)
    rbds.trash_restore(io, image_id, "back")
    with rbd.Image(io, "back") as image:
        assert image.read(0, 4) == b"kept" and image.id() == image_id
    rbds.trash_move(io, "back")
    rbds.trash_remove(io, image_id)
    fails(errno.ENOENT, rbds.trash_get, io, image_id)
    create("purged", MIB).close()
    rbds.trash_move(io, "purged")
    rbds.trash_purge(io)
    assert list(rbds.trash_list(io)) == []


@section
def namespaces_and_pool_stats():
    rbds.namespace_create(io, "ns")
    assert rbds.namespace_exists(io, "ns") and rbds.namespace_list(io) == ["ns"]
    fails(errno.EEXIST, rbds.namespace_create, io, "ns")
    io.set_namespace("ns")
    create("inside", 2 * MIB).close()
    assert rbds.list(io) == ["inside"]
    stats = rbds.pool_stats_get(io)
    assert (stats["image_count"], stats["image_provisioned_bytes"]) == (1, 2 * MIB), stats
    rbds.remove(io, "inside")
    io.set_namespace("")
    rbds.namespace_remove(io, "ns")
    fails(errno.ENOENT, rbds.namespace_remove, io, "ns")


@section
def migration():
    content = noise(2 * MIB)
    with create("old", 2 * MIB) as image:
        image.write(content, 0)
    rbds.migration_prepare(io, "old", io, "new", features=rbd.RBD_FEATURE_LAYERING)
    assert rbds.migration_status(io, "new")["state"] == rbd.RBD_IMAGE_MIGRATION_STATE_PREPARED
    with rbd.Image(io, "new") as image:
        image.write(b"during", MIB)
    rbds.migration_execute(io, "new")
    assert rbds.migration_status(io, "new")["state"] == rbd.RBD_IMAGE_MIGRATION_STATE_EXECUTED
    rbds.migration_commit(io, "new")
    with rbd.Image(io, "new") as image:
        assert all_of(image) == content[:MIB] + b"during" + content[MIB + 6:]
    assert rbds.list(io) == ["new"]
    rbds.remove(io, "new")


@section
def encryption():
    with create("secret", 20 * MIB) as image:
        image.encryption_format(rbd.RBD_ENCRYPTION_FORMAT_LUKS2, "password")
        size = image.size()
        assert size < 20 * MIB, "the header takes its place"
        image.write(b"nobody knows", 0)
        assert image.read(0, 12) == b"nobody knows"
    with rbd.Image(io, "secret") as image:
        assert b"nobody knows" not in all_of(image)
        fails(errno.EPERM, image.encryption_load, rbd.RBD_ENCRYPTION_FORMAT_LUKS2, "wrong")
        image.encryption_load(rbd.RBD_ENCRYPTION_FORMAT_LUKS2, "password")
        assert image.read(0, 12) == b"nobody knows"
    rbds.remove(io, "secret")


assert rbds.list(io) == [], rbds.list(io)
left = [o.key for o in io.list_objects()]
assert not any("data" in name or "header" in name for name in left), left
io.close()
cluster.shutdown()
print("all is well")
