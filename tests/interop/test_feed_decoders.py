"""Our ITCH and MoldUDP64 against other people's decoders: itchfeed, meatpy and tshark.

A stream of messages that is built by hand is read by itchfeed, message by message, into what its events must be,
and by us. What we write is read by all three.
"""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path
from random import Random
from struct import pack
from typing import Any

import numpy as np
import pytest
from tests.feeds import itch_samples as itch
from tests.feeds.itch_samples import MIDNIGHT, OPEN, frame
from tests.feeds.test_itch_decoder import decode
from tests.feeds.test_itch_streams import read as read_stream
from tests.feeds.test_itch_streams import session

from isocast.feeds.itch_streams import SoupPackets
from isocast.feeds.itch_writer import ItchWriter
from isocast.feeds.outcomes import FeedLog
from isocast.feeds.synthetic import SyntheticDay, SyntheticPlan
from isocast.runtime.client.feed_sinks import open_sink
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Side
from isocast.wire.events import EventArray

itchfeed = pytest.importorskip("itch.parser", reason="itchfeed is not installed: pip install itchfeed")
meatpy = pytest.importorskip("meatpy.itch50", reason="meatpy is not installed: pip install meatpy")

NAMES = ["ISO", "CAST", "ZZZ.A", "EIGHTLTR"]


def order_flow(seed: int, count: int) -> list[bytes]:
    """Random orders and what happens to them, by hand."""
    random = Random(seed)
    messages = [itch.directory(place + 1, OPEN, name) for place, name in enumerate(NAMES)]
    standing: dict[int, tuple[int, int]] = {}
    clock, next_order = OPEN, 1_000
    for match in range(count):
        clock += random.randrange(1_000)
        place = random.randrange(len(NAMES))
        what = random.choices("AFPQBHSEECXDU", k=1)[0]
        if what in "ECXDU" and standing:
            order = random.choice(list(standing))
            locate, left = standing.pop(order)
            part = random.randint(1, left)
            if what in "ECX" and part < left:
                standing[order] = locate, left - part
            match what:
                case "E":
                    messages.append(itch.executed(locate, clock, order, part, match))
                case "C":
                    messages.append(itch.executed_at(locate, clock, order, part, match, random.choice("YN"), match))
                case "X" if part < left:
                    messages.append(itch.cancel(locate, clock, order, part))
                case "U":
                    next_order += 1
                    standing[next_order] = locate, part
                    messages.append(itch.replace(locate, clock, order, next_order, part, random.randrange(1 << 32)))
                case _:
                    messages.append(itch.delete(locate, clock, order))
                    standing.pop(order, None)
            continue
        match what:
            case "P":
                messages.append(itch.trade(place + 1, clock, 5, NAMES[place], 77, match))
            case "Q":
                messages.append(itch.cross(place + 1, clock, 500, NAMES[place], 78, match, random.choice("OCHI")))
            case "B":
                messages.append(itch.broken(place + 1, clock, match))
            case "H":
                messages.append(itch.action(place + 1, clock, NAMES[place], random.choice("HPQT")))
            case "S":
                messages.append(itch.system(clock, random.choice("OSQMEC")))
            case _:
                next_order += random.randint(1, 9)
                owner = random.choice(["NITE", "GSCO"]) if what == "F" else ""
                shares = random.randint(1, 900)
                standing[next_order] = place + 1, shares
                price = random.randrange(1 << 32)
                side = random.choice("BS")
                messages.append(itch.add(place + 1, clock, next_order, side, shares, NAMES[place], price, owner))
    return messages


class Reference:
    """Events out of itchfeed's messages, one at a time, with a dictionary for the orders."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self._names: dict[int, bytes] = {}
        self._orders: dict[int, tuple[int, int, int]] = {}

    def see(self, message: Any) -> None:  # noqa: ANN401 - a class for each type
        kind = message.message_type.decode()
        if hasattr(message, "stock"):
            self._names[message.stock_locate] = message.stock.rstrip()
        symbol = self._names.get(message.stock_locate, b"")
        at = MIDNIGHT + message.timestamp

        def put(
            what: EventKind,
            side: int = 0,
            flags: int = 0,
            price: int = 0,
            shares: int = 0,
            reference: int = 0,
            id: int = 0,  # noqa: A002
        ) -> None:
            name = b"" if what is EventKind.MARK else symbol
            self.rows.append((int(what), side, flags, b"XNAS", name, price, shares, reference, at, id))

        match kind:
            case "S":
                put(EventKind.MARK, reference=ord(message.event_code))
            case "R":
                put(EventKind.DIRECTORY, price=100, shares=message.round_lot_size, id=message.stock_locate)
            case "H":
                state = {b"H": 2, b"P": 3, b"Q": 4, b"T": 5}[message.trading_state]
                put(EventKind.STATUS, reference=MarketStatus(state))
            case "A" | "F":
                number = message.order_reference_number
                owner = int.from_bytes(message.attribution) if kind == "F" else 0
                side = int(Side.BUY if message.buy_sell_indicator == b"B" else Side.SELL)
                self._orders[number] = side, message.price, owner
                put(EventKind.ORDER, side, 0, message.price, message.shares, owner, number)
            case "E" | "C":
                number = message.order_reference_number
                side, price, _ = self._orders[number]
                hidden = kind == "C" and message.printable == b"N"
                price = message.execution_price if kind == "C" else price
                flags = EventFlag.UNPRINTED if hidden else 0
                put(EventKind.EXECUTION, side, flags, price, message.executed_shares, message.match_number, number)
            case "X" | "D":
                number = message.order_reference_number
                shares = message.cancelled_shares if kind == "X" else 0
                put(EventKind.CANCEL, shares=shares, reference=self._orders[number][2], id=number)
            case "U":
                old, new = message.order_reference_number, message.new_order_reference_number
                side, _, owner = self._orders[old]
                self._orders[new] = side, message.price, owner
                put(EventKind.CANCEL, flags=EventFlag.LINKED, reference=owner, id=old)
                put(EventKind.ORDER, side, 0, message.price, message.shares, owner, new)
            case "P":
                put(EventKind.TRADE, 0, 0, message.price, message.shares, 0, message.match_number)
            case "Q":
                letter = ord(message.cross_type)
                put(
                    EventKind.TRADE,
                    0,
                    EventFlag.AUCTION,
                    message.cross_price,
                    message.shares,
                    letter,
                    message.match_number,
                )
            case "B":
                put(EventKind.TRADE_CANCEL, id=message.match_number)
            case _:
                pytest.fail(kind)


@pytest.mark.parametrize("seed, chunk", [(1, 1 << 20), (2, 3_000), (3, 100)])
def test_a_decoder_of_blocks_says_what_a_decoder_of_messages_says(seed: int, chunk: int) -> None:
    messages = order_flow(seed, 3_000)
    reference = Reference()
    parser = itchfeed.MessageParser()
    for raw in messages:
        reference.see(parser.get_message_type(raw))
    events, log = decode(frame(*messages), chunk, strict=True)
    assert events.tolist() == reference.rows
    assert log.total_messages == len(messages)


def test_itchfeed_cuts_a_file_without_lengths_where_we_do() -> None:
    """Its messages know their sizes: it finds the next one by the type of this one."""
    raw = b"".join(order_flow(7, 2_000))
    reference = Reference()
    parser = itchfeed.MessageParser()
    at = count = 0
    while at < len(raw):
        end = at + itchfeed.msgs[raw[at : at + 1]].message_size
        reference.see(parser.get_message_type(raw[at:end]))
        at, count = end, count + 1
    events, log = read_stream(raw, "none", 1_000)
    assert events.tolist() == reference.rows
    assert log.total_messages == count


def written(seed: int) -> tuple[EventArray, bytes]:
    events, _ = decode(frame(*order_flow(seed, 2_000)))
    return events, ItchWriter(MIDNIGHT, FeedLog("out")).write(events)


def test_itchfeed_reads_what_we_write() -> None:
    events, raw = written(4)
    reference = Reference()
    parser = itchfeed.MessageParser()
    at = 0
    again = []
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 2])
        message = parser.get_message_type(raw[at + 2 : at + 2 + size])
        again.append(message.to_bytes())
        reference.see(message)
        at += 2 + size
    assert frame(*again) == raw, "byte for byte"
    assert reference.rows == events.tolist()


def test_meatpy_reads_what_we_write() -> None:
    events, raw = written(5)
    reader = meatpy.ITCH50MessageReader()
    found = list(reader._read_messages(io.BytesIO(raw)))  # noqa: SLF001 - the same as for a file, without one
    assert frame(*(message.to_bytes() for message in found)) == raw, "byte for byte"
    linked = (events["flags"] & int(EventFlag.LINKED)) > 0
    firsts = np.concatenate([[True], ~linked[:-1]])
    assert [MIDNIGHT + message.timestamp for message in found] == events["time"][firsts].tolist()


def test_public_decoders_read_a_synthetic_floor() -> None:
    """Directory, auctions, trades, halts and breaks of a generated day, as an edge feed has them."""
    plan = SyntheticPlan(seed=9, floors=1, symbols=25, trades=1_500, quotes_per_trade=0.0, correction_share=0.01)
    day = SyntheticDay(plan)
    log = FeedLog("out")
    writer = ItchWriter(day.world.midnight, log, name_floors=True)
    events = np.concatenate(list(day.blocks()))
    raw = writer.write(events)
    assert not log.skipped
    counts: dict[str, int] = {}
    for message in itchfeed.MessageParser().parse_file(io.BytesIO(raw)):
        name = message.message_type.decode()
        counts[name] = counts.get(name, 0) + 1
    kinds = np.bincount(events["kind"], minlength=12)
    corrections = int(kinds[EventKind.CORRECTION])
    assert corrections > 0
    assert counts["P"] + counts["Q"] == kinds[EventKind.TRADE] + corrections
    assert counts["B"] == kinds[EventKind.TRADE_CANCEL] + corrections
    assert (counts["R"], counts["H"], counts["S"]) == (25, int(kinds[EventKind.STATUS]), 4)
    assert counts["L"] == 26, "the floor, and each symbol on it"
    assert len(list(meatpy.ITCH50MessageReader()._read_messages(io.BytesIO(raw)))) == sum(counts.values())  # noqa: SLF001


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not here: apt-get install tshark")
def test_tshark_reads_our_moldudp64(tmp_path: Path) -> None:
    events, _ = written(6)
    writer = ItchWriter(MIDNIGHT, FeedLog("out"), name_floors=True)
    raw = writer.write(events[:100]) + writer.write(events[100:])
    path = tmp_path / "feed.pcap"
    with open_sink(path, FeedLog("x"), "America/New_York") as sink:
        sink.write(events[:100])
        sink.write(events[100:])
        sink.finish("")
    fields = ["moldudp64.session", "moldudp64.sequence", "moldudp64.count", "moldudp64.msgseq", "moldudp64.msglen"]
    command = ["tshark", "-r", str(path), "-d", "udp.port==26477,moldudp64", "-o", "ip.check_checksum:TRUE"]
    command += ["-T", "fields", "-E", "separator=|"]
    for field in [*fields, "ip.checksum.status", "frame.time_epoch"]:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60)
    rows = [line.split("|") for line in done.stdout.splitlines()]
    assert {row[0] for row in rows} == {"ISOCAST001"}
    assert {row[5] for row in rows} <= {"1", "Good"}
    lengths = [int(size) for row in rows for size in row[4].split(",") if size]
    numbers = [int(number) for row in rows[:-1] for number in row[3].split(",") if number]
    at, expected = 0, []
    while at < len(raw):
        expected.append(int.from_bytes(raw[at : at + 2]))
        at += 2 + expected[-1]
    assert lengths == expected
    assert numbers == list(range(1, len(expected) + 1))
    assert sum(int(row[2]) for row in rows[:-1]) == len(expected)
    assert (int(rows[-1][1]), int(rows[-1][2])) == (len(expected) + 1, 0xFFFF), "the end of the session"


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not here: apt-get install tshark")
def test_tshark_finds_the_same_soupbintcp_packets(tmp_path: Path) -> None:
    """A packet in each segment of a TCP stream: type and length of each are what tshark says."""
    raw, own = session(*itch.day()), SoupPackets(FeedLog("x"))
    at, pieces = 0, []
    while at < len(raw):
        pieces.append(raw[at : at + own.size(raw, at)])
        at += len(pieces[-1])
    sent = 1
    frames = [pack(">IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 101)]
    for number, piece in enumerate(pieces):
        tcp = pack(">HHIIBBHHH", 9_000, 9_001, sent, 1, 5 << 4, 0x18, 8_192, 0, 0) + piece
        sent += len(piece)
        frame_bytes = pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), number, 0, 64, 6, 0) + b"\x0a\0\0\1\x0a\0\0\2" + tcp
        frames.append(pack(">IIII", number, 0, len(frame_bytes), len(frame_bytes)) + frame_bytes)
    path = tmp_path / "soup.pcap"
    path.write_bytes(b"".join(frames))
    command = ["tshark", "-r", str(path), "-d", "tcp.port==9000,soupbintcp", "-o", "tcp.check_checksum:FALSE"]
    command += ["-T", "fields", "-e", "soupbintcp.packet_type", "-e", "soupbintcp.packet_length"]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60)
    columns = [line.split("\t") for line in done.stdout.splitlines() if line.strip()]
    found = [(kind.strip("'"), int(size)) for kind, size in columns]
    assert found == [(chr(piece[2]), len(piece) - 2) for piece in pieces]
