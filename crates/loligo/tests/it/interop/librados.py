"""Uses a pool through librados, and checks every result.

usage: librados.py POOL   (the cluster is named by CEPH_CONF)
"""
import ctypes
import errno
import struct
import sys
import threading

import rados

pool = sys.argv[1]
cluster = rados.Rados(conffile="")
cluster.connect(timeout=30)
io = cluster.open_ioctx(pool)
lib = ctypes.CDLL("librados.so.2", use_errno=True)


def fails(code, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except rados.Error as e:
        assert e.errno == code or getattr(e, "ret", None) in (code, -code), (e, e.errno, code)
        return
    raise AssertionError(f"{call} did not fail")


def section(f):
    f()
    print(f.__name__, flush=True)


@section
def identity():
    assert cluster.get_fsid().count("-") == 4
    assert cluster.get_instance_id() > 0
    assert pool in cluster.list_pools()
    assert cluster.pool_exists(pool) and not cluster.pool_exists("no such pool")
    stats = cluster.get_cluster_stats()
    assert stats["kb"] > 0 and stats["kb_avail"] <= stats["kb"]
    assert cluster.pool_lookup(pool) >= 0
    assert cluster.pool_reverse_lookup(cluster.pool_lookup(pool)) == pool


@section
def contents():
    data = bytes(range(256)) * 500
    io.write_full("a", data)
    assert io.read("a", length=len(data)) == data
    assert io.read("a", length=10, offset=300) == data[300:310]
    assert io.read("a", length=10, offset=len(data) - 4) == data[-4:]
    assert io.read("a", length=10, offset=len(data) + 4) == b""
    io.write("a", b"XYZ", 1000)
    assert io.read("a", 5, 999) == data[999:1000] + b"XYZ" + data[1003:1004]
    io.append("a", b"END")
    size, _ = io.stat("a")
    assert size == len(data) + 3
    io.trunc("a", 5)
    assert io.read("a") == data[:5]
    io.writesame("a", b"ab", 8, 2)
    assert io.read("a") == data[:2] + b"abababab"
    io.remove_object("a")
    fails(errno.ENOENT, io.read, "a")
    fails(errno.ENOENT, io.stat, "a")
    fails(errno.ENOENT, io.remove_object, "a")


@section
def compare():
    io.write_full("c", b"0123456789")
    assert io.cmpext("c", b"345", 3) == 0
    # -MAX_ERRNO - offset
    assert io.cmpext("c", b"34x", 3) == -4095 - 2


@section
def attributes():
    io.write_full("x", b"")
    io.set_xattr("x", "one", b"1\0binary")
    io.set_xattr("x", "two", b"")
    assert io.get_xattr("x", "one") == b"1\0binary"
    assert {k: bytes(v) for k, v in io.get_xattrs("x")} == {"one": b"1\0binary", "two": b""}
    io.rm_xattr("x", "two")
    fails(errno.ENODATA, io.get_xattr, "x", "two")


@section
def compound():
    with rados.WriteOpCtx() as op:
        op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
        op.write_full(b"hello")
        op.append(b" world")
        op.set_xattr("k", b"v")
        io.set_omap(op, ("m1", "m2"), (b"1", b"2"))
        io.operate_write_op(op, "comp")
    assert io.read("comp") == b"hello world"
    assert io.get_xattr("comp", "k") == b"v"
    # All or nothing: the second creation fails, so nothing is written.
    with rados.WriteOpCtx() as op:
        op.write_full(b"changed")
        op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
        fails(errno.EEXIST, io.operate_write_op, op, "comp")
    assert io.read("comp") == b"hello world"
    with rados.WriteOpCtx() as op:
        op.truncate(5)
        # The binding swaps offset and length; these two are the same either way.
        op.zero(2, 2)
        io.operate_write_op(op, "comp")
    assert io.read("comp") == b"he\0\0o"
    with rados.WriteOpCtx() as op:
        op.cmpext(b"h", 0)
        op.write(b"J", 0)
        io.operate_write_op(op, "comp")
    assert io.read("comp") == b"Je\0\0o"
    with rados.WriteOpCtx() as op:
        op.cmpext(b"h", 0)
        op.write(b"K", 0)
        fails(4095, io.operate_write_op, op, "comp")
    assert io.read("comp") == b"Je\0\0o"
    version = io.get_last_version()
    assert version > 0


@section
def versions():
    io.write_full("v", b"1")
    first = io.get_last_version()
    io.write_full("v", b"2")
    assert io.get_last_version() == first + 1
    io.read("v")
    assert io.get_last_version() == first + 1
    for version, code in ((first, errno.ERANGE), (first + 2, errno.EOVERFLOW)):
        with rados.WriteOpCtx() as op:
            op.assert_version(version)
            op.set_xattr("version", b"wrong")
            fails(code, io.operate_write_op, op, "v")
    with rados.WriteOpCtx() as op:
        op.assert_version(first + 1)
        op.set_xattr("version", b"right")
        io.operate_write_op(op, "v")
    assert io.get_xattr("v", "version") == b"right"


@section
def omap():
    keys = tuple("k%03d" % i for i in range(200))
    with rados.WriteOpCtx() as op:
        io.set_omap(op, keys, tuple(k.encode() * 3 for k in keys))
        io.operate_write_op(op, "o")
    with rados.ReadOpCtx() as op:
        found, _ = io.get_omap_vals(op, "", "", 1000)
        io.operate_read_op(op, "o")
        assert [k for k, _ in found] == list(keys)
    with rados.ReadOpCtx() as op:
        found, _ = io.get_omap_vals(op, "k010", "k01", 5)
        io.operate_read_op(op, "o")
        assert [k for k, _ in found] == ["k011", "k012", "k013", "k014", "k015"]
    with rados.ReadOpCtx() as op:
        found, _ = io.get_omap_keys(op, "k197", 10)
        io.operate_read_op(op, "o")
        assert [k for k, _ in found] == ["k198", "k199"]
    with rados.ReadOpCtx() as op:
        found, _ = io.get_omap_vals_by_keys(op, ("k005", "nope", "k007"))
        io.operate_read_op(op, "o")
        assert dict(found) == {"k005": b"k005" * 3, "k007": b"k007" * 3}
    with rados.WriteOpCtx() as op:
        io.remove_omap_keys(op, ("k005", "nope"))
        io.operate_write_op(op, "o")
    with rados.WriteOpCtx() as op:
        io.remove_omap_range2(op, "k100", "k150")
        io.operate_write_op(op, "o")
    with rados.ReadOpCtx() as op:
        found, _ = io.get_omap_keys(op, "k098", 3)
        io.operate_read_op(op, "o")
        assert [k for k, _ in found] == ["k099", "k150", "k151"]
    with rados.WriteOpCtx() as op:
        op.omap_cmp("k007", "k007k007k007", rados.LIBRADOS_CMPXATTR_OP_EQ)
        op.set_xattr("passed", b"yes")
        io.operate_write_op(op, "o")
    with rados.WriteOpCtx() as op:
        op.omap_cmp("k007", "something else", rados.LIBRADOS_CMPXATTR_OP_EQ)
        op.set_xattr("passed", b"twice")
        fails(errno.ECANCELED, io.operate_write_op, op, "o")
    assert io.get_xattr("o", "passed") == b"yes"
    with rados.WriteOpCtx() as op:
        io.clear_omap(op)
        io.operate_write_op(op, "o")
    with rados.ReadOpCtx() as op:
        found, _ = io.get_omap_vals(op, "", "", 1000)
        io.operate_read_op(op, "o")
        assert list(found) == []


@section
def asynchronous():
    done = []
    lock = threading.Lock()

    def finished(i):
        def f(completion, *data):
            with lock:
                done.append((i, completion.get_return_value()))
        return f

    writes = [io.aio_write_full("aio%d" % i, b"%d" % i * 1000, oncomplete=finished(i))
              for i in range(200)]
    for w in writes:
        w.wait_for_complete_and_cb()
        assert w.get_return_value() == 0
    assert sorted(i for i, _ in done) == list(range(200))
    read = {}

    def got(i):
        def f(completion, data):
            read[i] = data
        return f

    reads = [io.aio_read("aio%d" % i, 10000, 0, got(i)) for i in range(200)]
    for r in reads:
        r.wait_for_complete_and_cb()
    assert all(read[i] == b"%d" % i * 1000 for i in range(200))
    # Writes to one object are applied in the order in which they were submitted.
    same = [io.aio_append("same", b"%03d," % i) for i in range(300)]
    for w in same:
        w.wait_for_complete()
    assert io.read("same", 10000) == b"".join(b"%03d," % i for i in range(300))


@section
def listing():
    listed = {o.key for o in io.list_objects()}
    assert {"aio%d" % i for i in range(200)} <= listed
    io.set_namespace("ns")
    io.write_full("inner", b"x")
    assert [o.key for o in io.list_objects()] == ["inner"]
    io.set_namespace(rados.LIBRADOS_ALL_NSPACES)
    both = {(o.nspace, o.key) for o in io.list_objects()}
    assert ("ns", "inner") in both and ("", "same") in both
    io.set_namespace("")
    assert "inner" not in {o.key for o in io.list_objects()}


@section
def locators():
    io.set_locator_key("together")
    io.write_full("keyed", b"with a key")
    assert io.read("keyed") == b"with a key"
    io.set_locator_key("")
    fails(errno.ENOENT, io.read, "keyed")
    found = {(o.key, o.locator_key) for o in io.list_objects() if o.locator_key}
    assert found == {("keyed", "together")}, found


@section
def checksums():
    """CHECKSUM and sparse reads are in the C library only."""
    io.write_full("sum", b"123456789" * 8)
    lib.rados_create_read_op.restype = ctypes.c_void_p
    op = lib.rados_create_read_op()
    init = struct.pack("<I", 0xFFFFFFFF)
    out, rval = ctypes.create_string_buffer(64), ctypes.c_int()
    crc32c = 2
    lib.rados_read_op_checksum.argtypes = [
        ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64,
        ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    lib.rados_read_op_checksum(op, crc32c, init, 4, 0, 18, 9, out, 64, ctypes.byref(rval))
    lib.rados_read_op_operate.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    lib.rados_ioctx_create.restype = ctypes.c_int
    handle, raw = ctypes.c_void_p(), ctypes.c_void_p()
    assert lib.rados_create2(ctypes.byref(handle), b"ceph", b"client.admin", 0) == 0
    assert lib.rados_conf_read_file(handle, None) == 0
    assert lib.rados_connect(handle) == 0
    assert lib.rados_ioctx_create(handle, pool.encode(), ctypes.byref(raw)) == 0
    result = lib.rados_read_op_operate(op, raw, b"sum", 0)
    assert result == 0, result
    count, first, second = struct.unpack_from("<III", out.raw)
    # CRC-32C of "123456789", without the final inversion.
    assert (count, first, second) == (2, 0x1CF96D7C, 0x1CF96D7C), (count, hex(first))
    lib.rados_release_read_op.argtypes = [ctypes.c_void_p]
    lib.rados_release_read_op(op)
    lib.rados_ioctx_destroy(raw)
    lib.rados_shutdown(handle)


@section
def own_snapshots():
    """Snapshots as librbd makes them, in a pool of their own kind."""
    io.write_full("snap", b"first")
    one = io.create_self_managed_snap()
    io.set_self_managed_snap_write([one])
    io.write_full("snap", b"second")
    two = io.create_self_managed_snap()
    io.set_self_managed_snap_write([two, one])
    io.write_full("snap", b"third")
    for snap, expected in ((one, b"first"), (two, b"second")):
        io.set_read(snap)
        assert io.read("snap") == expected
    io.set_read(rados.LIBRADOS_SNAP_HEAD)
    assert io.read("snap") == b"third"
    io.rollback_self_managed_snap("snap", one)
    assert io.read("snap") == b"first"
    io.remove_self_managed_snap(one)
    io.set_self_managed_snap_write([two])
    io.set_read(two)
    assert io.read("snap") == b"second"
    io.set_read(rados.LIBRADOS_SNAP_HEAD)
    io.remove_self_managed_snap(two)
    io.set_self_managed_snap_write([])
    assert io.read("snap") == b"first"
    fails(errno.EINVAL, io.create_snap, "pool-snap-in-such-a-pool")


@section
def watching():
    heard = []

    def notified(notify_id, notifier_id, watch_id, data):
        heard.append(bytes(data))
        return "ack " + bytes(data).decode()

    def notify(message):
        answers = []
        done = io.aio_notify("bell", lambda c, r, acks, late: answers.append((r, acks, late)),
                             message, 10000)
        done.wait_for_complete_and_cb()
        return answers[0]

    io.write_full("bell", b"")
    watch = io.watch("bell", notified, timeout=30)
    assert watch.check().total_seconds() < 30
    result, acks, late = notify("ding")
    assert result == 0 and heard == [b"ding"], (result, heard)
    assert [bytes(a[2]) for a in acks] == [b"ack ding"] and late == [], (acks, late)
    assert io.notify("bell", "dang", 10000) and heard == [b"ding", b"dang"]
    watch.close()
    result, acks, late = notify("dong")
    assert (result, acks, late) == (0, [], []) and heard == [b"ding", b"dang"]


@section
def locks():
    """Object classes come with a later issue; until then a class call says so."""
    try:
        io.execute("bell", "no_such_class", "method", b"")
    except rados.Error as e:
        assert e.errno in (errno.EOPNOTSUPP, errno.EPERM), e
    else:
        raise AssertionError("a class nobody has was called")


@section
def limits():
    fails(errno.ENAMETOOLONG, io.write_full, "n" * 3000, b"x")
    fails(errno.EFBIG, io.write, "big", b"x", 1 << 40)
    for size in (100 << 20, 250 << 20):
        fails(errno.EMSGSIZE, io.write_full, "big", bytes(size))
    fails(errno.EINVAL, io.set_xattr, "", "k", b"v")


@section
def commands():
    code, out, err = cluster.mon_command('{"prefix":"status","format":"json"}', b"")
    assert code == 0 and out.lstrip().startswith(b"{"), (code, out, err)
    code, out, err = cluster.mon_command('{"prefix":"no such command"}', b"")
    assert code == -errno.EINVAL, (code, err)


io.close()
cluster.shutdown()
print("all is well")
