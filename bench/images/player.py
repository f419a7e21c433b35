"""Makes calls of librados and librbd on one cluster, as it is told to line by line.

Runs as a process of its own with Debian's Python, which has the modules; a call that hangs or ends
the process then ends nothing else. `player.py CONF POOL DATA_POOL`; each line of standard input is a
call in JSON, each line of output what came of it:

    {"on": "rbd", "call": "create", "args": [{"$io": ["a", ""]}, "image", 1048576], "kw": {}}

`on` is what has the method: `rbd`, a handle ("h1", opened by the call `open`), `group`, `io`, `c`
(calls that only librbd's C interface has), or `player` (what this file itself does). An argument
{"$...": ...} is looked up: see `Player.argument`.

What differs between two clusters that are told the same is replaced: ids by their order, times,
addresses.
"""

import ctypes
import datetime
import hashlib
import json
import os
import re
import sys
import threading
import time

import rados
import rbd

from names import Names

# Of the client itself, so that both clusters have the same.
CONF = {"rbd_cache": "false", "rbd_clone_copy_on_read": "false", "client_mount_timeout": "30"}
CLIENTS = ("a", "b")
# Of an image longer than this only beginning and end are read.
ALL_READ = 16 << 20
PATIENCE = 60


class Player:
    def __init__(self, conf, pool, data_pool):
        self.clusters = {}
        for client in CLIENTS:
            cluster = rados.Rados(conffile=conf, conf=CONF)
            cluster.connect(timeout=30)
            self.clusters[client] = cluster
        self.conf, self.pools = conf, (pool, data_pool)
        self.rbd = rbd.RBD()
        self.handles = {}
        self.names = Names()
        self.ios = {}
        self.c = None
        self.pool_ids = {self.clusters["a"].pool_lookup(pool): kind
                         for pool, kind in zip(self.pools, ("POOL", "DATA"))}

    # ---- arguments

    def io(self, client, nspace, pool=0):
        key = (client, nspace, pool)
        if key not in self.ios:
            io = self.clusters[client].open_ioctx(self.pools[pool])
            io.set_namespace(nspace)
            self.ios[key] = io
        return self.ios[key]

    def argument(self, arg):
        if isinstance(arg, list):
            return [self.argument(a) for a in arg]
        if not isinstance(arg, dict) or not any(k.startswith("$") for k in arg):
            return arg
        [(kind, value)] = arg.items()
        return getattr(self, "arg_" + kind[1:])(value)

    def arg_io(self, value):
        return self.io(*value)

    def arg_data(self, value):
        seed, length = value
        return noise(seed, length)

    def arg_id(self, value):
        """The id of an image by its name, or of one in the trash."""
        client, nspace, name = value
        io = self.io(client, nspace)
        found = [i["id"] for i in self.rbd.list2(io) if i["name"] == name] + \
            [i["id"] for i in self.rbd.trash_list(io) if i["name"] == name]
        return found[0] if found else "123abc"

    def arg_snap(self, value):
        """The id of a snapshot of a handle by its name."""
        handle, name = value
        found = [s["id"] for s in self.handle(handle).list_snaps() if s["name"] == name]
        return found[0] if found else 123456

    def arg_snap_there(self, value):
        """The same, where librbd asserts that there is such a snapshot."""
        found = self.arg_snap(value)
        if found == 123456:
            raise NoHandle
        return found

    def arg_cluster(self, value):
        return self.clusters[value]

    def arg_time(self, value):
        return datetime.datetime.utcnow() + datetime.timedelta(seconds=value)

    # ---- calls

    def play(self, call):
        on, method = call["on"], call["call"]
        try:
            if on in ("player", "c"):
                target = self if on == "player" else self.the_c()
                value = getattr(target, "do_" + method)(*self.argument(call.get("args", [])))
            else:
                value = self.method(on, method, call)
        except NoHandle:
            return {"no": "handle"}
        except Exception as e:  # whatever a call raises is its result
            number = getattr(e, "errno", None)
            return {"raised": type(e).__name__, "errno": number}
        return {"value": self.plain(value, method)}

    def method(self, on, method, call):
        if on in ("rbd", "mgr"):
            target = self.rbd
        elif on == "group":
            *io, name = call["group"]
            target = rbd.Group(self.io(*io), name)
        elif on == "io":
            target = self.io(*call["io"])
        else:
            target = self.handle(on)
        args = [self.argument(a) for a in call.get("args", [])]
        kw = {k: self.argument(v) for k, v in call.get("kw", {}).items()}
        if method.startswith("aio_"):
            return self.asynchronous(target, method, args)
        if method == "diff_iterate":
            extents = []
            target.diff_iterate(*args, lambda at, length, exists:
                                extents.append((at, length, exists)), **kw)
            return extents
        value = getattr(target, method)(*args, **kw)
        return list(value) if hasattr(value, "__next__") or isinstance(value, rbd_iterators) \
            else value

    def handle(self, name):
        if name not in self.handles:
            raise NoHandle
        return self.handles[name]

    def asynchronous(self, image, method, args):
        done, got = threading.Event(), []

        def complete(completion, *more):
            got.append((completion.get_return_value(), more))
            done.set()
        # Where the function stands among the arguments.
        place = {"aio_read": 2, "aio_write": 2, "aio_discard": 2, "aio_write_zeroes": 2,
                 "aio_flush": 0, "aio_mirror_image_create_snapshot": 1}.get(method, 0)
        getattr(image, method)(*args[:place], complete, *args[place:])
        if not done.wait(PATIENCE):
            raise TimeoutError(method)
        return got[0]

    def do_open(self, handle, client, nspace, name, kw):
        self.do_close(handle)
        kw = {k: self.argument(v) for k, v in kw.items()}
        if "image_id" in kw:
            name = None
        if "snapshot" in kw and isinstance(kw["snapshot"], list):
            with rbd.Image(self.io(client, nspace), name, read_only=True) as image:
                found = [s["id"] for s in image.list_snaps() if s["name"] == kw["snapshot"][0]]
            kw["snapshot"] = found[0] if found else 123456
        self.handles[handle] = rbd.Image(self.io(client, nspace), name, **kw)

    def do_close(self, handle):
        image = self.handles.pop(handle, None)
        if image is not None:
            image.close()

    def do_conf(self, client, key, value):
        self.clusters[client].conf_set(key, value)

    def do_mgr(self, command):
        """A command of `ceph`. Asked again while nobody answers."""
        r, out, said = self.clusters["a"].mgr_command(json.dumps(self.argument_deep(command)), b"")
        try:
            out = json.loads(out)
        except ValueError:
            out = out.decode()
        return r, out, said

    def argument_deep(self, command):
        return {k: self.argument(v) for k, v in command.items()}

    def tasks(self):
        _, out, _ = self.clusters["a"].mgr_command('{"prefix": "rbd task list"}', b"")
        return json.loads(out or b"[]")

    def do_tasks_end(self):
        """Waits for what is done in the background. What fails is tried again: that is an end, too."""
        end = time.monotonic() + PATIENCE
        while (left := self.tasks()) and time.monotonic() < end:
            if all("retry_message" in task for task in left):
                break
            time.sleep(0.2)
        return [task["message"] for task in left]

    def do_clean(self):
        """Takes away every object of both pools."""
        for handle in list(self.handles):
            self.do_close(handle)
        for task in self.tasks():
            self.do_mgr({"prefix": "rbd task cancel", "task_id": task["id"]})
        for _, io, found in self.everything():
            try:
                io.remove_object(found.key)
            except rados.ObjectNotFound:
                pass
        self.names = Names()

    def everything(self):
        """All objects of both pools. Heads that are gone, while their clones are not, too."""
        for pool in range(len(self.pools)):
            everywhere = self.clusters["a"].open_ioctx(self.pools[pool])
            everywhere.set_namespace(rados.LIBRADOS_ALL_NSPACES)
            for found in list(everywhere.list_objects()):
                yield pool, self.io("a", found.nspace, pool), found

    # ---- how everything is

    def do_look(self, nspaces):
        seen = {"objects": self.do_objects()}
        for nspace in nspaces:
            io = self.io("a", nspace)
            for name in ("list2", "trash_list", "group_list", "mirror_image_status_list",
                         "pool_metadata_list", "pool_stats_get", "mirror_mode_get"):
                seen[nspace, name] = self.look(lambda: getattr(self.rbd, name)(io))
            for group in self.look_list(lambda: self.rbd.group_list(io)):
                for name in ("list_images", "list_snaps"):
                    seen[nspace, group, name] = \
                        self.look(lambda: getattr(rbd.Group(io, group), name)())
            for image in sorted(self.look_list(lambda: self.rbd.list(io))):
                seen[nspace, image] = self.look(lambda: self.look_at(io, image))
        seen["namespaces"] = self.look(lambda: self.rbd.namespace_list(self.io("a", "")))
        return {" ".join(k) if isinstance(k, tuple) else k: v for k, v in seen.items()}

    def do_objects(self):
        seen = []
        for pool, io, found in self.everything():
            try:
                io.stat(found.key)
                if found.key in OF_THE_MGR:
                    continue
                seen.append(f"{pool}/{found.nspace}/{found.key}")
            except rados.ObjectNotFound:
                pass
        # Ids are named by the order in which they are seen, and here they are that order.
        seen = [re.sub(r"[0-9a-f]{9,20}", "ID", name) for name in seen]
        return sorted(re.sub(r"_data\.\d{1,4}\.ID", "_data.POOL.ID", name) for name in seen)

    def look(self, call):
        try:
            value = call()
            return list(value) if isinstance(value, rbd_iterators) else value
        except rbd.Error as e:
            return {"raised": type(e).__name__, "errno": getattr(e, "errno", None)}

    def look_list(self, call):
        value = self.look(call)
        return value if isinstance(value, list) else []

    def look_at(self, io, name):
        with rbd.Image(io, name, read_only=True) as image:
            seen = {}
            for method in ("size", "features", "flags", "op_features", "list_lockers",
                           "metadata_list", "group", "stripe_unit", "stripe_count",
                           "get_parent_image_spec", "list_children2", "list_descendants",
                           "data_pool_id", "overlap", "mirror_image_get_info"):
                seen[method] = self.look(getattr(image, method))
            seen["content"] = self.look(lambda: content(image))
            seen["snaps"] = snaps = self.look_list(lambda: list(image.list_snaps()))
            for snap in snaps:
                image.set_snap_by_id(snap["id"])
                for method in ("size", "flags", "get_parent_image_spec", "overlap",
                               "list_children2"):
                    snap[method] = self.look(getattr(image, method))
                snap["content"] = self.look(lambda: content(image))
                extents = []
                snap["diff"] = self.look(lambda: image.diff_iterate(
                    0, image.size(), None, lambda *e: extents.append(e)))
                snap["extents"] = extents
            return seen

    # ---- results

    def plain(self, value, where=""):
        if isinstance(value, dict):
            return {str(k): self.plain(v, str(k)) for k, v in value.items()
                    if k not in IGNORED}
        if isinstance(value, bytes):
            if len(value) > 64:
                return f"{len(value)} bytes md5:{hashlib.md5(value).hexdigest()}"
            return "bytes " + self.names.text(value.decode("latin-1"))
        if isinstance(value, str):
            # An id may have no letter.
            is_id = where in IMAGE_IDS and re.fullmatch(r"[0-9a-f]{9,20}", value)
            return self.names.of("ID", value) if is_id else self.names.text(value)
        if isinstance(value, datetime.datetime):
            return "TIME"
        if isinstance(value, int) and not isinstance(value, bool):
            if where in POOL_IDS:
                return self.pool_ids.get(value, value)
            if where in SNAP_IDS:
                return self.names.of("SNAP", value)
            return value
        if isinstance(value, (float, type(None), bool)):
            return value
        if isinstance(value, (list, tuple, set)) or isinstance(value, rbd_iterators):
            shown = [self.plain(v, where) for v in value]
            return sorted(shown, key=json.dumps) if where in UNORDERED else shown
        return f"<{type(value).__name__}>"

    def the_c(self):
        self.c = self.c or C(self.conf, self.pools[0])
        return self.c


rbd_iterators = tuple(getattr(rbd, name) for name in dir(rbd) if name.endswith("Iterator"))
POOL_IDS = {"pool", "pool_id", "data_pool_id", "source_pool_id", "dest_pool_id"}
IMAGE_IDS = {"id", "image_id", "source_image_id", "dest_image_id"}
SNAP_IDS = {"snap_id", "snap_get_id", "primary_snap_id", "id"}
# Lists in no order of their own: watchers by address, children by id, tasks.
UNORDERED = {"watchers_list", "list_children", "list_children2", "list_descendants", "trash_list",
             "list_images", "mirror_image_info_list", "mirror_image_status_list"}
# Where Ceph's mgr keeps what it is to do; Loligo's mon has a store of its own.
OF_THE_MGR = {"rbd_task", "rbd_trash_purge_schedule", "rbd_mirror_snapshot_schedule"}
# How often either mgr was asked for something before is another matter.
IGNORED = {"last_update", "client_id", "cookie", "sequence"}


class NoHandle(Exception):
    """The call is about an image that was not opened."""


def noise(seed, length):
    if seed is None:
        return bytes(length)
    out = b"".join(hashlib.md5(f"{seed}.{n}".encode()).digest() for n in range(length // 16 + 1))
    return out[:length]


def content(image):
    size = image.size()
    if size <= ALL_READ:
        return image.read(0, size) if size else b""
    return image.read(0, ALL_READ // 2) + image.read(size - ALL_READ // 2, ALL_READ // 2)


class C:
    """What librbd's Python does not reach."""

    def __init__(self, conf, pool):
        librados, self.lib = ctypes.CDLL("librados.so.2"), ctypes.CDLL("librbd.so.1")
        u64, size, ptr, text, num = (ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p,
                                     ctypes.c_char_p, ctypes.c_int)
        self.lib.rbd_writesame.argtypes = [ptr, u64, size, text, size, num]
        self.lib.rbd_writesame.restype = ctypes.c_ssize_t
        self.lib.rbd_compare_and_write.argtypes = [ptr, u64, size, text, text, ptr, num]
        self.lib.rbd_compare_and_write.restype = ctypes.c_ssize_t
        self.cluster, self.io = ptr(), ptr()
        librados.rados_create(ctypes.byref(self.cluster), None)
        librados.rados_conf_read_file(self.cluster, conf.encode())
        for key, value in CONF.items():
            librados.rados_conf_set(self.cluster, key.encode(), value.encode())
        if librados.rados_connect(self.cluster) or librados.rados_ioctx_create(
                self.cluster, pool.encode(), ctypes.byref(self.io)):
            raise RuntimeError("cannot connect")

    def with_image(self, name, call):
        image = ctypes.c_void_p()
        r = self.lib.rbd_open(self.io, name.encode(), ctypes.byref(image), None)
        if r < 0:
            return ["open", r]
        try:
            return call(image)
        finally:
            self.lib.rbd_close(image)

    def do_write_same(self, name, at, length, seed, pattern):
        return self.with_image(name, lambda image: self.lib.rbd_writesame(
            image, at, length, noise(seed, pattern), pattern, 0))

    def do_compare_and_write(self, name, at, length, old, new):
        other = ctypes.c_uint64()
        return self.with_image(name, lambda image: [self.lib.rbd_compare_and_write(
            image, at, length, noise(old, length), noise(new, length), ctypes.byref(other), 0),
            other.value])


def main():
    conf, pool, data_pool = sys.argv[1:]
    # What libraries print is not an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    player = Player(conf, pool, data_pool)
    for line in sys.stdin:
        answer = player.play(json.loads(line))
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()
    # Handles that hang must not keep the process.
    os._exit(0)


if __name__ == "__main__":
    main()
