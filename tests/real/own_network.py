"""A network namespace of this process's own: what others send on a shared one passes for a sign of life of a training that hangs."""

import ctypes
import fcntl
import os
import socket
import struct
import subprocess

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1


def own_network(address=None):
    """Leaves this process, and what it starts, with a loopback interface of its own and nothing else. Without root it says that it cannot.

    address: one that is no loopback's, and the way to everywhere, for who looks for the address that leads out.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        print(f"no network of its own ({os.strerror(ctypes.get_errno())}): what others send may keep a hang from being seen", flush=True)
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
    if address:
        subprocess.run(["ip", "addr", "add", f"{address}/32", "dev", "lo"], check=True)
        subprocess.run(["ip", "route", "add", "default", "dev", "lo"], check=True)
