"""Block images beside real Ceph: random calls of librbd, and the command lines of `rbd`."""
