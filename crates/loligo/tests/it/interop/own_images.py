"""Does to images through librbd what the lines on stdin say, one JSON object a line, and answers
each with one line.

usage: own_images.py POOL   (the cluster is named by CEPH_CONF)

Images stay open until they are closed, so that the exclusive lock has to go from hand to hand.
"""
import base64
import hashlib
import json
import sys

import rados
import rbd

cluster = rados.Rados(conffile="")
# What is written is to be in the cluster, and discards are to be exact.
cluster.conf_set("rbd_cache", "false")
cluster.conf_set("rbd_skip_partial_discard", "false")
cluster.connect(timeout=30)
io = cluster.open_ioctx(sys.argv[1])
images = {}


def image(ask):
    name = ask["image"]
    if name not in images:
        images[name] = rbd.Image(io, name)
    # Some calls of librbd look at the size before they read a changed header again; this one does
    # not.
    images[name].size()
    return images[name]


def create(ask):
    more = {}
    if ask.get("stripe_count"):
        more.update(stripe_unit=ask["stripe_unit"], stripe_count=ask["stripe_count"])
    if ask.get("data_pool"):
        more.update(data_pool=ask["data_pool"])
    rbd.RBD().create(io, ask["image"], ask["size"], ask["order"], old_format=False,
                     features=ask["features"], **more)


def read(ask):
    name = ask["image"]
    if ask.get("snap"):
        with rbd.Image(io, name, snapshot=ask["snap"], read_only=True) as at:
            return base64.b64encode(at.read(ask["at"], ask["len"])).decode()
    return base64.b64encode(image(ask).read(ask["at"], ask["len"])).decode()


def digest(ask):
    """Size and hash of an image, or of a snapshot of it."""
    with rbd.Image(io, ask["image"], snapshot=ask.get("snap"), read_only=True) as at:
        size = at.size()
        data = at.read(0, size) if size else b""
        return {"size": size, "sha1": hashlib.sha1(data).hexdigest()}


def write(ask):
    data = base64.b64decode(ask["data"])
    assert image(ask).write(data, ask["at"]) == len(data)


def close(ask):
    at = images.pop(ask["image"], None)
    if at is not None:
        at.close()


todo = {
    "create": create,
    "remove": lambda a: rbd.RBD().remove(io, a["image"]),
    "read": read,
    "digest": digest,
    "write": write,
    "close": close,
    "discard": lambda a: image(a).discard(a["at"], a["len"]) and None,
    "write_zeroes": lambda a: image(a).write_zeroes(a["at"], a["len"], 0) and None,
    "flush": lambda a: image(a).flush(),
    "resize": lambda a: image(a).resize(a["size"]),
    "snap_create": lambda a: image(a).create_snap(a["snap"]),
    "snap_remove": lambda a: image(a).remove_snap(a["snap"]),
    "snap_rollback": lambda a: image(a).rollback_to_snap(a["snap"]),
    "snap_protect": lambda a: image(a).protect_snap(a["snap"]),
    "snap_unprotect": lambda a: image(a).unprotect_snap(a["snap"]),
    "flatten": lambda a: image(a).flatten(),
    "size": lambda a: image(a).size(),
    "flags": lambda a: image(a).flags(),
    "owner": lambda a: image(a).is_exclusive_lock_owner(),
}

for line in sys.stdin:
    ask = json.loads(line)
    try:
        answer = {"ok": todo[ask["do"]](ask)}
    except (rbd.Error, rados.Error) as e:
        answer = {"error": str(e), "errno": getattr(e, "errno", None)}
    print(json.dumps(answer), flush=True)
for at in images.values():
    at.close()
