"""Somebody else's decoder reads what our FIX server says: tshark, with no help from us."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from struct import pack

from tests.interop.pcap import needs_tshark
from tests.runtime.accounts.fix.transcripts import Client, Stage

from isocast.orders.desk import ReportKind

_RAW_IPV4 = 101
FIELDS = ("fix.MsgType", "fix.MsgSeqNum", "fix.SenderCompID", "fix.ExecID", "fix.OrdStatus", "fix.checksum_good")


async def session(folder: Path) -> list[bytes]:
    """Every kind of message that a server sends."""
    stage = Stage(folder)
    await stage.start()
    client = await Client.connect(stage)
    frames = []
    order = "38=100|40=2|44=10.05|54=1|55=XISO|60=20231114-22:13:20"
    for line, answers in (
        ("35=A|34=1|98=0|108=30|553=anna|554=secret", 1),
        (f"35=D|34=2|11=o1|{order}", 2),
        ("35=1|34=3|112=HELLO", 1),
        ("35=F|34=4|11=c1|41=never|54=1|55=XISO|60=20231114-22:13:20", 1),
        ("35=V|34=5", 1),
        ("35=0|34=6|999=x", 1),
        ("35=q|34=7|11=m1|530=9|60=20231114-22:13:20", 1),
        ("35=q|34=8|11=m1|530=3|60=20231114-22:13:20", 1),
        ("35=2|34=9|7=1|16=0", 8),
        ("35=0|34=12", 1),
    ):
        await client.send(line)
        frames += [await client.frame() for _ in range(answers)]
    stage.desk.settle(ReportKind.BUSTED, stage.desk.trade("o1", 100, 33_333))
    frames += [await client.frame() for _ in range(2)]
    await client.send("35=5|34=12")
    frames.append(await client.frame())
    await client.closed()
    await stage.end()
    return frames


def capture(frames: list[bytes]) -> bytes:
    """A TCP stream, one message in each segment."""
    pieces = [pack(">IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, _RAW_IPV4)]
    sent = 1
    for number, frame in enumerate(frames):
        tcp = pack(">HHIIBBHHH", 9_878, 40_000, sent, 1, 5 << 4, 0x18, 8_192, 0, 0) + frame
        sent += len(frame)
        packet = pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), number, 0, 64, 6, 0) + b"\x0a\0\0\1\x0a\0\0\2" + tcp
        pieces += [pack(">IIII", number, 0, len(packet), len(packet)), packet]
    return b"".join(pieces)


@needs_tshark
def test_tshark_decodes_every_message_of_ours(tmp_path: Path) -> None:
    frames = asyncio.run(session(tmp_path))
    path = tmp_path / "fix.pcap"
    path.write_bytes(capture(frames))
    command = ["tshark", "-n", "-r", str(path), "-d", "tcp.port==9878,fix", "-T", "fields", "-E", "separator=|"]
    for field in (*FIELDS, "_ws.malformed"):
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=240)
    rows = [dict(zip((*FIELDS, "bad"), line.split("|"), strict=True)) for line in done.stdout.splitlines()]
    values = [dict(part.split("=", 1) for part in frame.decode().split("\x01")[:-1]) for frame in frames]
    assert [row["fix.MsgType"] for row in rows] == [value["35"] for value in values]
    assert [row["fix.MsgSeqNum"] for row in rows] == [value["34"] for value in values]
    assert [row["fix.ExecID"] for row in rows] == [value.get("17", "") for value in values]
    assert [row["fix.OrdStatus"] for row in rows] == [value.get("39", "") for value in values]
    assert {row["fix.SenderCompID"] for row in rows} == {"ISOCAST"}
    assert {row["fix.checksum_good"] for row in rows} <= {"1", "True"}
    assert {row["bad"] for row in rows} == {""}
    assert {value["35"] for value in values} == set("A0234589jr8")
