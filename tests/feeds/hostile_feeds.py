"""Hostile bytes for every reader of feeds: shared by the fuzz target and by the tests that run without one.

Whatever the bytes, a reader gives events that our own checks accept, counts the rest, and raises FeedError only where
the bytes are not the format at all; a strict one raises it at the first fault and nothing else.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from datetime import date

from tests.feeds import dbn_samples as dbn
from tests.feeds import itch_samples as itch
from tests.feeds import tape_samples as tape
from tests.feeds.itch_samples import MIDNIGHT, frame

from isocast.feeds.capture_feeds import CaptureFeed
from isocast.feeds.captures import read_capture, write_capture
from isocast.feeds.compressed import expand
from isocast.feeds.dbn import DbnDecoder
from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.itch_streams import ItchStream, SoupPackets, UnframedMessages
from isocast.feeds.lobster import LobsterDecoder
from isocast.feeds.mappings import BUILT_IN, read_mapping
from isocast.feeds.mold import MoldReader, packetise
from isocast.feeds.outcomes import FeedLog
from isocast.feeds.tables import TableDecoder
from isocast.terms.errors import ConfigurationError, FeedError
from isocast.terms.market import Mic, Symbol
from isocast.wire.events import EventArray, are_events

__all__ = ["WAYS_IN", "examine", "seeds"]

_FLOOR = Mic("XNAS")
_DAY = date(2019, 1, 30)
_SIZES = (64, 1_000, 1 << 20)

Way = Callable[[bytes, FeedLog], Iterable[EventArray]]


def examine(data: bytes) -> bool:
    """Read the bytes by the way that the first one chooses; True when nothing was wrong with them."""
    way = WAYS_IN[data[0] % len(WAYS_IN)] if data else _itch
    size = _SIZES[data[0] // len(WAYS_IN) % len(_SIZES)] if data else 64
    body = data[1:]
    log = FeedLog("hostile")
    try:
        for events in way(body, log, size):
            assert are_events(events.tobytes())
        assert all(record["count"] > 0 and record["first_offset"] >= 0 for record in log.faults.values())
    except (FeedError, ConfigurationError):
        return False
    strict = FeedLog("hostile", strict=True)
    try:
        for events in way(body, strict, size):
            assert are_events(events.tobytes())
    except FeedError:
        assert log.faults, "a strict reader stops only where another counts"
    else:
        assert not log.faults
    return not log.faults


def _cut(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def _itch(data: bytes, log: FeedLog, size: int) -> Iterator[EventArray]:
    return ItchDecoder(_FLOOR, MIDNIGHT, log).blocks(_cut(data, size))


def _compressed(data: bytes, log: FeedLog, size: int) -> Iterator[EventArray]:
    return ItchDecoder(_FLOOR, MIDNIGHT, log).blocks(expand(_cut(data, size), log, at_most=1 << 16))


def _capture(data: bytes, log: FeedLog, size: int) -> Iterator[EventArray]:
    feed = CaptureFeed(lambda _: ItchDecoder(_FLOOR, MIDNIGHT, log), log)
    for datagram in read_capture(_cut(data, size), log):
        feed.receive(datagram)
        yield from feed.take()
    yield from feed.end()


def _packets(data: bytes, log: FeedLog, size: int) -> Iterator[EventArray]:
    """Packets with their lengths before them."""
    reader = MoldReader(lambda _: ItchDecoder(_FLOOR, MIDNIGHT, log), log, waiting_max=max(size % 7, 1))
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 2])
        reader.receive(data[at + 2 : at + 2 + length], at)
        at += 2 + length
    yield from reader.end()


def _ticks(data: bytes, log: FeedLog, size: int) -> Iterator[EventArray]:
    return TableDecoder(BUILT_IN["us-tape-trades"], log, day=_DAY, symbol=Symbol("A")).blocks(_cut(data, size))


def _quotes(data: bytes, log: FeedLog, size: int) -> Iterator[EventArray]:
    return TableDecoder(BUILT_IN["us-tape-quotes"], log, day=_DAY, symbol=Symbol("A")).blocks(_cut(data, size))


def _taq(data: bytes, log: FeedLog, size: int) -> Iterator[EventArray]:
    return TableDecoder(BUILT_IN["taq-trades"], log, day=_DAY).blocks(_cut(data, size))


def _lobster(data: bytes, log: FeedLog, size: int) -> Iterator[EventArray]:
    return LobsterDecoder(_FLOOR, Symbol("A"), "2019-01-30", log).blocks(_cut(data, size))


def _mapped(data: bytes, log: FeedLog, size: int) -> Iterator[EventArray]:
    """A mapping from the first half, and a table for it."""
    text, _, table = data.partition(b"\0")
    mapping = read_mapping(text.decode("utf-8", "replace"), "hostile.toml")
    decoder = TableDecoder(mapping, log, day=_DAY, symbol=Symbol("A"), floor=_FLOOR)
    return decoder.blocks(_cut(table, size))


def _dbn(data: bytes, log: FeedLog, size: int) -> Iterator[EventArray]:
    return DbnDecoder(log).blocks(_cut(data, size))


def _unframed(data: bytes, log: FeedLog, size: int) -> Iterator[EventArray]:
    return ItchStream(ItchDecoder(_FLOOR, MIDNIGHT, log), UnframedMessages()).blocks(_cut(data, size))


def _soup(data: bytes, log: FeedLog, size: int) -> Iterator[EventArray]:
    return ItchStream(ItchDecoder(_FLOOR, MIDNIGHT, log), SoupPackets(log)).blocks(_cut(data, size))


WAYS_IN = (_itch, _compressed, _capture, _packets, _ticks, _quotes, _taq, _lobster, _mapped, _dbn, _unframed, _soup)

_ISO_TABLE = b"""kind = "trade"
time = "t"
time_form = "iso"
columns = ["t", "p", "q"]
price = "p"
quantity = "q"
\x002019-01-30T09:30:00.5,1.25,100
"2019-01-30 14:30:01Z","2",5
"""

_ORDER_TABLE = b"""kind = "order"
time = "t"
time_form = "iso"
columns = ["t", "k", "id", "new", "s", "p", "x", "q"]
kinds = "k"
id = "id"
new_id = "new"
side = "s"
price = "p"
execution_price = "x"
quantity = "q"
\x002019-01-30T09:30:00.5,order,7,,B,1.25,,100
2019-01-30T09:30:01,replace,7,8,B,1.5,,50
2019-01-30T09:30:02,execution,8,,,1.5,1.25,20
2019-01-30T09:30:03,cancel,8,,,,,
"""


def seeds() -> list[bytes]:
    """Sound bytes for each way in."""
    day = frame(*itch.day())
    packets = list(packetise("ISO", 1, day, room=200))
    capture = b"".join(write_capture([(MIDNIGHT + place, each) for place, each in enumerate(packets)], "239.1.2.3", 9))
    lengthened = b"".join(len(packet).to_bytes(2) + packet for packet in packets)
    ticks = b"14400688,491800,300,P,2000,0\n14581540,488700,2000,Q,20002020,0\n"
    quotes = b"14400054,0,0,1836300,100,Q,1,0\n14400241,1800100,300,5,1,P,1,0\n"
    taq = b"Time|Exchange|Symbol|Trade Volume|Trade Price|Trade Correction Indicator|Sequence Number\n"
    taq += b"093000123456789|N|IBM|100|181.25|00|7\n093001|T|BRK A|5|130000.1|12|8\n"
    lobster = b"34200.004241176,1,16113575,18,5853300,1\n34200.2,4,16113575,10,5853300,1\n34201,7,0,0,-1,-1\n"
    login = b"\0\x1fA" + b"ISO".rjust(10) + b"1".rjust(20)
    soup = login + b"".join((len(each) + 1).to_bytes(2) + b"S" + each for each in itch.day()) + b"\0\1Z"
    bodies = [day, gzip.compress(day, mtime=0), capture, lengthened, ticks, quotes, taq, lobster, _ISO_TABLE]
    bodies += [dbn.day(), b"".join(itch.day()), soup]
    tapes = b"".join(write_capture([(MIDNIGHT, each) for each in tape.capture()], "239.1.2.3", 9))
    mapped = bytes([WAYS_IN.index(_mapped)]) + _ORDER_TABLE
    return [*(bytes([place]) + body for place, body in enumerate(bodies)), b"\2" + tapes, mapped]
