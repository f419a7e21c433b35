#!/usr/bin/python3
"""Compares a cluster of real Ceph and one of Loligo by calls of librados, or by command lines of `rados`.

`bench/beside` starts the clusters and this. Needs python3-rados.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import clusters
import histories
import tool


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["librados", "rados"], help="calls, or command lines")
    p.add_argument("--ceph", required=True, help="folder of a cluster of real Ceph")
    p.add_argument("--loligo", required=True, help="folder of a Loligo cluster")
    p.add_argument("--first", type=int, default=1, help="first history of calls (1)")
    p.add_argument("--seeds", type=int, default=100, help="how many (100)")
    args = p.parse_args()
    # Neither is started or stopped here.
    ours = clusters.Loligo(pathlib.Path(args.loligo), 0, None)
    theirs = clusters.Ceph(pathlib.Path(args.ceph), 0)
    if args.what == "librados":
        is_same = histories.compare(args.first, args.seeds, ours, theirs)
    else:
        is_same = tool.compare(ours, theirs)
    sys.exit(0 if is_same else 1)


if __name__ == "__main__":
    main()
