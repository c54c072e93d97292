"""Small programs that tests run inside a lab; each says "up" when it is ready to be talked to."""

import subprocess
import sys
from collections.abc import Sequence

from isocast.trials.lab import Lab

__all__ = ["ECHO", "HEAR", "PING", "SEND", "python", "run_inside", "start_inside"]

ECHO = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 5000))
print("up", flush=True)
while True:
    data, peer = s.recvfrom(65536)
    s.sendto(data, peer)
"""

PING = """
import socket, sys, time
own, there, count, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((own, 0))
s.settimeout(seconds)
for number in range(count):
    began = time.monotonic_ns()
    s.sendto(str(number).encode(), (there, 5000))
    try:
        while int(s.recv(100)) != number:
            pass
    except TimeoutError:
        print("lost")
    else:
        print(time.monotonic_ns() - began)
"""

HEAR = """
import socket, sys
own, group, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((group, 5001))
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(own))
print("up", flush=True)
print(sorted(s.recv(100).decode() for _ in range(count)))
"""

SEND = """
import socket, sys
own, there, port, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((own, 0))
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
for number in range(count):
    s.sendto(f"{number:03}".encode().ljust(size, b"."), (there, port))
"""


def python(program: str, *arguments: object) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", program, *map(str, arguments)]


def start_inside(lab: Lab, site: str, program: str, *arguments: object) -> "subprocess.Popen[bytes]":
    """Start a program and wait until it says that it is up."""
    process = lab.spawn(site, python(program, *arguments), stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def run_inside(lab: Lab, site: str, command: Sequence[str]) -> str:
    """What a command prints."""
    with lab.spawn(site, command, stdout=subprocess.PIPE) as process:
        out, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    return out.decode()
