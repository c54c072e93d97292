"""Captures as tests write them: raw IPv4 with UDP in pcap files; and tshark, asked for JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from socket import inet_aton
from struct import pack
from typing import Any

import pytest

__all__ = ["needs_tshark", "tshark_json", "write_pcap"]

_NANOSECONDS = 0xA1B23C4D
_RAW_IPV4 = 228
_BILLION = 10**9

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed: apt install tshark")


def write_pcap(path: Path, datagrams: Sequence[tuple[int, str, int, bytes]]) -> None:
    """One datagram for each (time in nanoseconds, address, port, bytes)."""
    pieces = [pack("<IHHiIII", _NANOSECONDS, 2, 4, 0, 0, 1 << 18, _RAW_IPV4)]
    for time, address, port, payload in datagrams:
        total = 28 + len(payload)
        ip = pack(">BBHHHBBH", 0x45, 0, total, 0, 0, 1, 17, 0) + inet_aton("127.0.0.1") + inet_aton(address)
        udp = pack(">HHHH", 40_000, port, 8 + len(payload), 0)
        pieces += [pack("<IIII", *divmod(time, _BILLION), total, total), ip, udp, payload]
    path.write_bytes(b"".join(pieces))


def tshark_json(capture: Path, *options: str, layer: str) -> list[Any]:
    """What tshark says of one protocol in each packet; None where it saw none."""
    command = ["tshark", "-n", "-r", str(capture), *options, "-T", "json", "--no-duplicate-keys", "-J", layer]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert run.returncode == 0, run.stderr
    assert "Lua" not in run.stderr, run.stderr
    return [packet["_source"]["layers"].get(layer) for packet in json.loads(run.stdout)]
