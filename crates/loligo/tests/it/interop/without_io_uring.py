"""Runs a command that the kernel gives no io_uring, as on old kernels and in many containers.

usage: without_io_uring.py COMMAND...
"""
import ctypes
import errno
import os
import platform
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD_WORD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
IO_URING_SETUP = 425

assert platform.machine() in ("x86_64", "aarch64"), "the call's number may be another"
program = b"".join(struct.pack("<HBBI", *instruction) for instruction in [
    (LOAD_WORD, 0, 0, 0),
    (JUMP_EQUAL, 0, 1, IO_URING_SETUP),
    (RETURN, 0, 0, FAIL | errno.ENOSYS),
    (RETURN, 0, 0, ALLOW),
])
buffer = ctypes.create_string_buffer(program)


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
where = Program(len(program) // 8, ctypes.addressof(buffer))
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(where), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
