"""Our readers of CTS, CQS, UTP and NYSE captures against a second one: the same events from the same datagrams.

No registry has a reader of these formats. `outside_layouts` is one that was written from public layouts without a look
at ours; it is first held against real packets by itself. tshark is the third reader, of the datagrams alone.

ISOCAST_DATA=/path/to/data pytest tests/interop/test_outside_readers.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
from tests.interop.outside_events import FLOORS, Expected, nyse_events, tape_events
from tests.interop.outside_layouts import CTA, CTA_WIDE, PILLAR, UTP, XDP, Family, Fields, fields_of, write
from tests.interop.pcap import needs_tshark, write_pcap

from isocast.feeds.capture_feeds import CaptureFeed
from isocast.feeds.captures import Datagram, read_capture
from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.terms.market import Mic
from isocast.wire.events import EVENT_DTYPE, are_events

DATA = os.environ.get("ISOCAST_DATA", "")
real = pytest.mark.skipif(not DATA, reason="ISOCAST_DATA does not say where the real captures are")
BILLION = 10**9
FAMILIES = {"Siac/Cts*": CTA, "Siac/Cqs*": CTA_WIDE, "Nasdaq/Uqdf*": UTP, "Nyse/*Xdp*": XDP, "Nyse/*Pillar*": PILLAR}
BEFORE, AFTER = 1_704_207_000 * BILLION, 1_775_575_800 * BILLION
"""Half past nine in New York in January 2024 and in April 2026: quotes count lots in one and shares in the other."""


def expected_of(family: Family, payloads: Sequence[bytes]) -> Expected:
    packets = [family.packet(payload) for payload in payloads]
    return nyse_events(packets) if family in (XDP, PILLAR) else tape_events(family, packets)


def assert_same(family: Family, datagrams: Sequence[Datagram]) -> Expected:
    """Ours reads what the other reader reads; the rows are shown where they part."""
    log = FeedLog("x.pcap")
    feed = CaptureFeed(lambda _: ItchDecoder(Mic("XNAS"), 0, log), log)
    for datagram in datagrams:
        feed.receive(datagram)
    found = np.concatenate([np.empty(0, EVENT_DTYPE), *feed.take(), *feed.end()])
    assert are_events(found.tobytes())
    expected = expected_of(family, [each.payload for each in datagrams])
    for ours, theirs in zip(found.tolist(), expected.rows, strict=False):
        assert ours == theirs
    assert len(found) == len(expected.rows)
    assert log.messages == expected.types
    assert log.conditions == expected.conditions
    assert log.quote_conditions == expected.quote_conditions
    wrong = {FeedFault.BAD_VALUE, FeedFault.UNKNOWN_ORDER, FeedFault.UNKNOWN_SYMBOL}
    assert set(log.faults) <= wrong
    return expected


# ---- real captures


def samples(pattern: str) -> list[Path]:
    found = sorted((Path(DATA) / "omi_pcap").glob(f"{pattern}/*.pcap"))
    assert found, pattern
    return found


def datagrams_of(*paths: Path) -> list[Datagram]:
    log = FeedLog("real")
    read = [each for path in paths for each in read_capture([path.read_bytes()], log)]
    return sorted(read, key=lambda each: each.time)


@real
@pytest.mark.parametrize("pattern", FAMILIES)
def test_the_tables_hold_on_real_packets_by_themselves(pattern: str) -> None:
    """Lengths add up to the packet, checksums to its bytes; symbols can be read, and times are of the day."""
    family = FAMILIES[pattern]
    for datagram in datagrams_of(*samples(pattern)):
        top, messages = family.packet(datagram.payload)
        if family in (CTA, CTA_WIDE):
            header = datagram.payload[:18] + datagram.payload[20:]
            assert top["checksum"] == sum(header) % (1 << 16)
        sent = [int(top["sent"])] if "sent" in top else [int(message["sent"]) for _, message in messages]
        assert all(abs(time - datagram.time) < BILLION for time in sent)
        for _, message in messages:
            assert str(message.get("symbol", "A")).isprintable()
            assert str(message.get("symbol", "A")).strip()
            own = int(message.get("time", 0))
            assert not own or datagram.time - 7 * 86_400 * BILLION < own < datagram.time + BILLION


@real
@pytest.mark.parametrize("pattern", ["Siac/Cts*", "Siac/Cqs*", "Nasdaq/Uqdf*"])
def test_real_packets_of_the_tapes_are_the_same_events(pattern: str) -> None:
    events = 0
    for path in samples(pattern):
        events += len(assert_same(FAMILIES[pattern], datagrams_of(path)).rows)
    assert events


@real
@pytest.mark.parametrize("pattern", ["Nyse/*Xdp*", "Nyse/*Pillar*"])
def test_real_packets_of_nyse_are_the_same_events(pattern: str) -> None:
    """One message of each type was published: mappings of their symbols are put before them.

    The seconds that were announced before each are not among them, so that the packets' own count: the symbols are of
    a system that announced none.
    """
    family, packets = FAMILIES[pattern], datagrams_of(*samples(pattern))
    indices = {
        int(message["index"]): None
        for packet in packets
        for _, message in family.packet(packet.payload).messages
        if "index" in message
    }
    mapped = []
    for place, index in enumerate(indices):
        fields: Fields = {"index": index, "symbol": f"S{place}", "market": 1, "system": 9, "scale": 4, "lot": 100}
        top: Fields = {"flag": 11, "sequence": place + 1, "sent": packets[0].time - BILLION}
        raw = family.datagram(top, [("3", family.body("3", fields))])
        mapped.append(Datagram(packets[0].time - BILLION, "", "239.0.0.1", 1, raw, place))
    lines = [each._replace(target=f"239.0.1.{place}") for place, each in enumerate(packets)]
    expected = assert_same(family, [*mapped, *lines])
    assert len(expected.rows) > len(mapped)


@real
@needs_tshark
def test_tshark_finds_the_same_datagrams_in_real_captures(tmp_path: Path) -> None:
    if shutil.which("mergecap") is None:
        pytest.skip("mergecap is not here: apt-get install wireshark-common")
    paths = [path for pattern in FAMILIES for path in samples(pattern)]
    merged = tmp_path / "all.pcapng"
    subprocess.run(["mergecap", "-a", "-w", merged, *paths], check=True, timeout=60)
    ours = [each.payload for path in paths for each in datagrams_of(path)]
    assert udp_payloads(merged) == ours


def udp_payloads(capture: Path) -> list[bytes]:
    command = ["tshark", "-n", "-r", str(capture), "-T", "fields", "-e", "udp.payload"]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60)
    return [bytes.fromhex(line) for line in done.stdout.splitlines()]


# ---- generated captures

LONG_NAMES = ["IBM", "BRK.A", "LVWR.WS", "EIGHTLTR", "NINELETTR", "A"]
SHORT_NAMES = ["AKAM", "GM", "FIVER", "A"]
PARTICIPANTS = [*FLOORS, "S", "E", "?"]


def any_value(random: Random, name: str, width: int, form: str, start: int) -> int | str:
    """Something that this field can say."""
    match name:
        case "symbol" | "old":
            return random.choice(SHORT_NAMES if width == 5 else LONG_NAMES)
        case "participant":
            return random.choice(PARTICIPANTS)
        case "time" | "time2" | "traded" | "at" if width == 8:
            return 0 if random.random() < 0.1 else start + random.randrange(10**13)
        case "sent":
            return start + random.randrange(10**13)
        case "rows" | "odd_count":
            return random.randrange(4) if name == "rows" else 0
        case "price" | "bid" | "offer" if width == 8:
            finer = random.random() < 0.1
            return random.choice([0, random.randrange(1 << 33)]) * (1 if finer else 100)
        case "volume" if width == 8:
            return random.choice([random.randrange(5_000) * 10**6, random.randrange(3 * 10**6), 1 << 53])
        case "bid_size" | "offer_size" | "volume":
            return random.choice([0, 1, random.randrange(1 << 8 * width)])
        case "conditions" | "wrong_conditions":
            return "".join(random.choice(places) for places in ("@ CNR", " FO45679", " LTUZ", " BEHIKMPQVX"))
        case _ if form == "a":
            return "".join(random.choice(" 0123456789ABCDEFGHIJKLMNOPQRSTUVWX") for _ in range(width))
        case _:
            return random.randrange(1 << 8 * width)


def any_fields(random: Random, layout: str, start: int) -> Fields:
    return {name: any_value(random, name, width, form, start) for name, width, form in fields_of(layout)}


def tape_day(family: Family, feed: str, seed: int, start: int) -> list[bytes]:
    """Blocks or packets of every type of a feed, several times, in any order."""
    random = Random(seed)
    own = [kind for kind in family.layouts if kind.startswith(feed) or not feed]
    kinds = own * 4 + [kind for kind in own if kind[-2] in "TQ"] * 40
    random.shuffle(kinds)
    packets, sequence = [], 1
    while kinds:
        count = min(random.randint(1, 5), len(kinds))
        chosen = [kinds.pop() for _ in range(count)]
        messages = [(kind, family.body(kind, any_fields(random, family.layouts[kind], start))) for kind in chosen]
        top: Fields = {"feed": feed, "resent": "O", "session": "OUTSIDER", "sequence": sequence, "version": 2}
        packets.append(family.datagram({**top, "sent": start + sequence}, messages))
        sequence += count
    return packets


def nyse_day(family: Family, seed: int, start: int, delay: int) -> list[bytes]:
    """Symbols of two systems, a minute of their orders and trades, each packet sent so long after its messages."""
    random = Random(seed)
    packets: list[bytes] = []
    sequence = 1

    def send(now: int, *messages: tuple[str, Fields]) -> None:
        nonlocal sequence
        bodies = [(kind, family.body(kind, fields)) for kind, fields in messages]
        packets.append(family.datagram({"flag": 11, "sequence": sequence, "sent": now + delay}, bodies))
        sequence += len(messages)

    for index, name in enumerate(LONG_NAMES):
        about: Fields = {"index": index, "symbol": name, "market": random.choice([1, 3, 9, 10, 11, 7])}
        about |= {"system": 1 + index % 2, "listing": "N", "scale": random.choice([2, 4, 6]), "lot": 100, "step": 100}
        send(start, ("3", about))
    second = 0
    for now in sorted(start + random.randrange(60 * BILLION) for _ in range(1_500)):
        if now // BILLION != second:
            second = now // BILLION
            for system in (1, 2):
                send(now, ("2", {"system": system, "second": second}))
        kind = random.choice([kind for kind in family.layouts if kind not in ("1", "2", "3")])
        fields = any_fields(random, family.layouts[kind], now)
        fields |= {"second": now // BILLION, "ns": now % BILLION, "index": random.randrange(8)}
        fields |= {"order": random.randrange(40), "new": 40 + random.randrange(40), "printed": random.randrange(2)}
        fields |= {"price": random.randrange(1 << 20) * random.choice([1, 100]), "execution": random.randrange(1 << 20)}
        fields |= {"side": random.choice("BS"), "conditions": random.choice(["@   ", "@F I", "@ T ", "@6  ", "C  V"])}
        send(now, (kind, fields))
    return packets


Day = Callable[[int], list[bytes]]
DAYS: dict[str, tuple[Family, Day]] = {
    "CTS": (CTA, lambda seed: tape_day(CTA, "T", seed, AFTER)),
    "CQS in lots": (CTA, lambda seed: tape_day(CTA, "Q", seed, BEFORE)),
    "CQS in shares": (CTA, lambda seed: tape_day(CTA, "Q", seed, AFTER)),
    "CQS 2.10": (CTA_WIDE, lambda seed: tape_day(CTA_WIDE, "Q", seed, AFTER)),
    "UTP in lots": (UTP, lambda seed: tape_day(UTP, "", seed, BEFORE)),
    "UTP in shares": (UTP, lambda seed: tape_day(UTP, "", seed, AFTER)),
    "XDP": (XDP, lambda seed: nyse_day(XDP, seed, BEFORE, 40_000)),
    "Pillar": (PILLAR, lambda seed: nyse_day(PILLAR, seed, AFTER, 600_000_000)),
    "Pillar, sent again": (PILLAR, lambda seed: nyse_day(PILLAR, seed, BEFORE, 30 * 86_400 * BILLION)),
}


def generated(name: str, seed: int, path: Path) -> tuple[Family, list[bytes], list[Datagram]]:
    """A day of one feed, written as a capture and read from it."""
    family, day = DAYS[name]
    packets = day(seed)
    write_pcap(path, [(AFTER + place, "239.9.9.9", 9_999, packet) for place, packet in enumerate(packets)])
    return family, packets, datagrams_of(path)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", DAYS)
def test_generated_captures_are_the_same_events(name: str, seed: int, tmp_path: Path) -> None:
    family, packets, datagrams = generated(name, seed, tmp_path / "day.pcap")
    assert [each.payload for each in datagrams] == packets
    expected = assert_same(family, datagrams)
    assert len(expected.rows) > 100, "enough of them can be carried"


@needs_tshark
def test_tshark_finds_the_same_datagrams_in_a_generated_capture(tmp_path: Path) -> None:
    path = tmp_path / "day.pcap"
    _, packets, datagrams = generated("CTS", 3, path)
    assert udp_payloads(path) == packets == [each.payload for each in datagrams]


def test_the_tables_read_what_they_wrote() -> None:
    random = Random(5)
    for family in (CTA, UTP, XDP, PILLAR):
        for kind, layout in family.layouts.items():
            meaning = " ".join(word for word in layout.split() if not word.endswith("-"))
            fields = any_fields(random, meaning, AFTER)
            body = family.body(kind, fields)
            assert body.startswith(write(layout, fields, big=family.big))
            raw = family.datagram({"feed": kind[0]}, [(kind, body)])
            ((again, found),) = family.packet(raw).messages
            assert (again, found) == (kind, fields)
