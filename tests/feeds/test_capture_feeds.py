"""The consolidated tapes and NYSE's integrated feed, datagram by datagram; built by hand, and real ones.

ISOCAST_DATA=/path/to/data pytest tests/feeds/test_capture_feeds.py
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from struct import pack

import numpy as np
import pytest
from tests.feeds import itch_samples as itch
from tests.feeds import tape_samples as tape
from tests.feeds.itch_samples import MIDNIGHT, frame
from tests.feeds.tape_samples import NOON, block, cta, nyse, nyse_add, nyse_mapping, nyse_packet, utp, utp_packet

from isocast.feeds.capture_feeds import CaptureFeed
from isocast.feeds.captures import Datagram, read_capture
from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.mold import end_of_session, heartbeat, packetise
from isocast.feeds.outcomes import FeedFault, FeedLog
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side
from isocast.wire.events import EVENT_DTYPE, EventArray, are_events

UNIT = 10**6
OWN = NOON * 10**9 + 5
VOLUME_ONLY = EventFlag.NOT_LAST | EventFlag.NOT_HIGH_LOW


def read(*packets: bytes, lines: tuple[str, ...] = ("239.1.1.1",)) -> tuple[EventArray, FeedLog]:
    log = FeedLog("x.pcap")
    feed = CaptureFeed(lambda _: ItchDecoder(Mic("XNAS"), MIDNIGHT, log), log)
    for place, packet in enumerate(packets):
        feed.receive(Datagram(0, "10.0.0.1", lines[place % len(lines)], 9, packet, 100 * place))
    events = np.concatenate([np.empty(0, EVENT_DTYPE), *feed.take(), *feed.end()])
    assert are_events(events.tobytes())
    return events, log


def rows(events: EventArray, *names: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in events[list(names)].tolist()]


# ---- the consolidated tapes


def test_trades_of_the_cta_carry_their_sale_conditions() -> None:
    events, log = read(
        block(
            1,
            cta("TL", tape.long_trade(27_100_000, 100)),
            cta("TL", tape.long_trade(80_810_000, 17, " F I", "ALLE"), "K"),
            cta("TT", b"AMP  I4" + pack(">HH", 13_273, 20) + b"NAA", "T"),
            cta("TR", tape.long_trade(13_300_000, 91 * UNIT, "  TI", "KSS", wide=True), "P"),
        )
    )
    odd = VOLUME_ONLY | EventFlag.ODD_LOT
    assert rows(events, "floor", "symbol", "price", "quantity", "flags", "time", "id") == [
        (b"XNYS", b"IBM", 271_000, 100, 0, OWN, 77),
        (b"EDGX", b"ALLE", 808_100, 17, odd, OWN, 77),
        (b"XNAS", b"AMP", 1_327_300, 20, odd, OWN, 77),
        (b"ARCX", b"KSS", 133_000, 91, odd | EventFlag.EXTENDED, OWN, 77),
    ]
    assert log.conditions == {"regular": 1, "intermarket sweep": 1, "odd lot": 3, "extended hours": 1}


def test_corrections_and_cancels_name_the_original_trade() -> None:
    events, _ = read(
        block(1, cta("TC", tape.corrected(5_572_700, 33_000, 123)), cta("TX", tape.cancelled(UNIT, 5, 124)))
    )
    assert rows(events, "kind", "price", "quantity", "id") == [
        (EventKind.CORRECTION, 55_727, 33_000, 123),
        (EventKind.TRADE_CANCEL, 0, 0, 124),
    ]


def test_fractional_trades_have_a_short_form_and_corrections() -> None:
    short = b"AMP  I4" + pack(">HI", 13_273, 20 * UNIT) + b"NAA"
    wide = b"IBM".ljust(11) + b"0    " + pack(">QQ", UNIT, 3 * UNIT) + b"\x0000 N" + bytes(8) + pack(">Q", 123)
    events, log = read(block(1, cta("TH", short, "G"), cta("TO", wide + bytes(98), "F")))
    assert rows(events, "kind", "floor", "symbol", "price", "quantity", "id") == [
        (EventKind.TRADE, b"24EQ", b"AMP", 1_327_300, 20, 77),
        (EventKind.CORRECTION, b"TXSE", b"IBM", 10_000, 3, 123),
    ]
    assert not log.faults


def test_fractions_of_shares_are_counted() -> None:
    half, more = (tape.long_trade(UNIT, size, wide=True) for size in (UNIT // 2, 3 * UNIT + 1))
    events, log = read(block(1, cta("TR", half), cta("TR", more)))
    assert events["quantity"].tolist() == [3]
    assert log.skipped == {
        "fractions of shares beyond the whole ones of a trade": 2,
        "trades of less than a share: no event carries them": 1,
    }


def test_quotes_count_round_lots_until_november_2025() -> None:
    body = tape.long_quote((29_450_000, 1), (0, 7))
    short = b"GM   " + pack(">HHHH", 5_000, 2, 5_001, 3) + b"N A"
    later = cta("QL", body, seconds=1_762_128_000)
    slow = later.replace(b"0R ", b"0H ")
    events, log = read(block(1, cta("QL", body), cta("QQ", short), slow, feed="Q"))
    assert log.quote_conditions == {"regular": 2, "slow on both sides": 1}
    assert rows(events, "kind", "side", "flags", "symbol", "price", "quantity") == [
        (EventKind.QUOTE, Side.BUY, EventFlag.LINKED, b"IBM", 294_500, 100),
        (EventKind.QUOTE, Side.SELL, 0, b"IBM", 0, 0),
        (EventKind.QUOTE, Side.BUY, EventFlag.LINKED, b"GM", 500_000, 200),
        (EventKind.QUOTE, Side.SELL, 0, b"GM", 500_100, 300),
        (EventKind.QUOTE, Side.BUY, EventFlag.LINKED, b"IBM", 294_500, 1),
        (EventKind.QUOTE, Side.SELL, 0, b"IBM", 0, 0),
    ]


@pytest.mark.parametrize("status", "09G")
def test_price_bands_in_the_place_of_a_quote_are_counted(status: str) -> None:
    band = cta("QL", tape.long_quote((29_450_000, 1), (30_000_000, 7)).replace(b"0R ", b"0R" + status.encode()))
    events, log = read(block(1, band, feed="Q"))
    assert not len(events)
    assert log.skipped == {"price bands and ranges in the place of quotes: no event carries them": 1}


def test_halts_and_what_no_event_carries() -> None:
    codes = [("2", " "), ("2", "M"), ("3", " "), ("7", " ")]
    messages = [cta("TS", tape.status(*code)) for code in codes]
    events, log = read(block(1, *messages, cta("TS", tape.status("2"), "S"), cta("CT", b"")))
    assert events["reference"].tolist() == [MarketStatus.HALTED, MarketStatus.PAUSED, MarketStatus.TRADING]
    assert log.skipped == {
        "trading status that changes no trading": 1,
        "messages of the processor itself: they are of no floor": 1,
        "CTA CT: no event carries it": 1,
    }


def test_the_utp() -> None:
    finra = bytes(8)
    short_quote = b"AKAM " + pack(">HHHH", 5_123, 1, 5_124, 2) + b"R   0A"
    long_quote = finra + b"AMZN".ljust(11) + pack(">QIQI", 767_250_000, 3, 767_310_000, 2) + b"J   3A "
    short_trade = finra + b"AKAM " + pack(">QHH", 31, 5_123, 20) + b"@  I" + b" 00"
    long_trade = finra + b"AMZN".ljust(11) + pack(">QQI", 32, 767_250_000, 200) + b"@ T " + b" \0\x0000"
    kinds = {"QE": short_quote, "QF": long_quote, "TA": short_trade, "TW": long_trade, "AP": b""}
    events, log = read(utp_packet(1, *(utp(kind, body) for kind, body in kinds.items())))
    assert rows(events, "kind", "floor", "symbol", "price", "quantity", "id", "time")[::2] == [
        (EventKind.QUOTE, b"XNAS", b"AKAM", 512_300, 100, 0, OWN),
        (EventKind.QUOTE, b"XNAS", b"AMZN", 7_672_500, 300, 0, OWN),
        (EventKind.TRADE, b"XNAS", b"AKAM", 512_300, 20, 31, OWN),
    ]
    assert rows(events, "price", "flags")[-1] == (7_672_500, VOLUME_ONLY | EventFlag.EXTENDED)
    assert log.skipped == {"UTP AP: no event carries it": 1}
    assert log.quote_conditions == {"regular": 1, "unknown 'J'": 1}


def test_cancels_corrections_fractions_and_halts_of_the_utp() -> None:
    stock = bytes(8) + b"AMZN".ljust(11)
    wrong, wide_wrong = (pack(f">QQ{size}", 31, 5 * UNIT, 100) + b"@    \0\0" for size in "IQ")
    messages = {
        "TM": bytes(8) + b"AKAM " + pack(">QHQ", 30, 5_123, 7 * UNIT) + b"@  I 00",
        "TN": stock + pack(">QQQ", 31, 5 * UNIT, 2 * UNIT) + b"@    \0\x0000",
        "TZ": stock + b"C" + wrong + bytes(66),
        "TO": stock + b"C" + wide_wrong + bytes(66),
        "TY": stock + wrong + pack(">QQI", 32, 6 * UNIT, 90) + b"@ Z  \0\0" + bytes(66),
        "TP": stock + wide_wrong + pack(">QQQ", 32, 6 * UNIT, 80 * UNIT) + b"@    \0\0" + bytes(66),
        "AH": b"AMZN".ljust(11) + b"P" + bytes(18),
        "QD": stock + pack(">QIQI", 7 * UNIT, 3, 8 * UNIT, 2) + b"R   0A  \0\0\0",
    }
    events, log = read(utp_packet(1, *(utp(kind, body) for kind, body in messages.items())))
    late = EventFlag.NOT_LAST | EventFlag.LATE
    assert rows(events, "kind", "price", "quantity", "flags", "reference", "id") == [
        (EventKind.TRADE, 512_300, 7, VOLUME_ONLY | EventFlag.ODD_LOT, 0, 30),
        (EventKind.TRADE, 50_000, 2, 0, 0, 31),
        (EventKind.TRADE_CANCEL, 0, 0, 0, 0, 31),
        (EventKind.TRADE_CANCEL, 0, 0, 0, 0, 31),
        (EventKind.CORRECTION, 60_000, 90, late, 0, 31),
        (EventKind.CORRECTION, 60_000, 80, 0, 0, 31),
        (EventKind.STATUS, 0, 0, 0, MarketStatus.PAUSED, 0),
        (EventKind.QUOTE, 70_000, 300, EventFlag.LINKED, 0, 0),
        (EventKind.QUOTE, 80_000, 200, 0, 0, 0),
    ]
    assert not log.faults


@pytest.mark.parametrize(
    "packet, kind, what",
    [
        (block(1, cta("TL", b"IBM")), FeedFault.BAD_LENGTH, "type TL is cut"),
        (block(1, b"\0\x05TLN"), FeedFault.BAD_LENGTH, "a message of 5 bytes in a block of 25"),
        (block(1, cta("TL", tape.long_trade(UNIT, 1), "?")), FeedFault.BAD_VALUE, "a participant that no event"),
        (block(1, cta("TL", tape.long_trade(UNIT, 1, symbol="NINELETTR"))), FeedFault.BAD_VALUE, "a symbol that"),
        (block(1, cta("TL", tape.long_trade(UNIT + 1, 1))), FeedFault.BAD_VALUE, "finer than 10^-4"),
        (block(1, cta("TL", tape.long_trade(UNIT, 0))), FeedFault.BAD_VALUE, "a trade of 0 shares"),
        (nyse_packet(1, nyse_add(5, 71, 1, 1)), FeedFault.UNKNOWN_SYMBOL, "no mapping has named"),
        (nyse_packet(1, nyse(100, b"1")), FeedFault.BAD_LENGTH, "type 100 has 1 bytes"),
        (nyse_packet(1, nyse_mapping(5, "A", 99)), FeedFault.BAD_VALUE, "symbol, market or scale"),
    ],
)
def test_what_is_wrong_is_counted_and_named(packet: bytes, kind: FeedFault, what: str) -> None:
    events, log = read(block(9, cta("CT", b"")), packet)
    assert not len(events)
    assert set(log.faults) == {kind}
    assert log.faults[kind]["first_offset"] == 100
    assert what in log.faults[kind]["first"]


# ---- NYSE


def test_the_life_of_an_order_on_nyse() -> None:
    packet = nyse_packet(
        1,
        nyse_mapping(5, "ABG", 6),
        nyse_add(5, 71, 10 * UNIT, 30, "S"),
        nyse(101, pack("<IIIQIIBBB", 4, 5, 2, 71, 11 * UNIT, 20, 0, 0, 0)),
        nyse(104, pack("<IIIQQIIBB", 4, 5, 3, 71, 72, 12 * UNIT, 20, 0, 0)),
        nyse(103, pack("<IIIQIIIBBI", 4, 5, 4, 72, 900, 12 * UNIT, 5, 1, 0, 0)),
        nyse(103, pack("<IIIQIIIBBI", 4, 5, 5, 72, 901, 12 * UNIT, 5, 0, 0, 0)),
        nyse(102, pack("<IIIQB", 4, 5, 6, 72, 0)),
        nyse(110, pack("<IIIIIIBI", 4, 5, 7, 902, 12 * UNIT, 7, 1, 0)),
        nyse(111, pack("<IIIIIIc", 4, 5, 8, 903, 12 * UNIT, 8, b"6")),
        nyse(112, pack("<IIII", 4, 5, 9, 902)),
        nyse(34, pack("<IIIIcc", NOON, 3, 5, 10, b"4", b"M") + bytes(24)),
        nyse(105, bytes(20)),
    )
    events, log = read(packet)
    assert rows(events, "kind", "side", "flags", "price", "quantity", "reference", "id") == [
        (EventKind.DIRECTORY, 0, 0, 1, 100, 0, 5),
        (EventKind.ORDER, Side.SELL, 0, 100_000, 30, 0, 71),
        (EventKind.REPLACE, Side.SELL, 0, 110_000, 20, 0, 71),
        (EventKind.CANCEL, 0, EventFlag.LINKED, 0, 0, 0, 71),
        (EventKind.ORDER, Side.SELL, 0, 120_000, 20, 0, 72),
        (EventKind.EXECUTION, Side.SELL, 0, 120_000, 5, 900, 72),
        (EventKind.EXECUTION, Side.SELL, EventFlag.UNPRINTED, 120_000, 5, 901, 72),
        (EventKind.CANCEL, 0, 0, 0, 0, 0, 72),
        (EventKind.TRADE, 0, 0, 120_000, 7, 0, 902),
        (EventKind.TRADE, 0, EventFlag.AUCTION | EventFlag.CLOSING, 120_000, 8, ord("6"), 903),
        (EventKind.TRADE_CANCEL, 0, 0, 0, 0, 0, 902),
        (EventKind.STATUS, 0, 0, 0, 0, MarketStatus.PAUSED, 0),
    ]
    assert set(events["symbol"].tolist()) == {b"ABG"}
    assert log.skipped == {"NYSE 105: no event carries it": 1}
    assert not log.faults


def test_nanoseconds_behind_the_packets_are_of_the_second_before() -> None:
    events, _ = read(nyse_packet(1, nyse_mapping(5, "A"), nyse_add(5, 1, 1, 1, ns=4), nyse_add(5, 2, 1, 1, ns=11)))
    assert events["time"].tolist()[1:] == [NOON * 10**9 + 4, (NOON - 1) * 10**9 + 11]


def test_trades_of_pillar_carry_their_sale_conditions_and_numbers_of_xdp_are_none() -> None:
    def traded(last: bytes, printed: int = 1) -> list[bytes]:
        executed = nyse(103, pack("<IIIQIIIBB", 4, 5, 4, 71, 900, 1, 5, printed, 0) + last)
        return [executed, nyse(110, pack("<IIIIIIB", 4, 5, 7, 902, 1, 7, printed) + last)]

    letters = [*traded(b"@ TI"), *traded(b"@6  ", 0)]
    events, log = read(nyse_packet(1, nyse_mapping(5, "A"), nyse_add(5, 71, 1, 90), *letters))
    extended = VOLUME_ONLY | EventFlag.EXTENDED | EventFlag.ODD_LOT
    assert events["flags"].tolist()[2:] == [extended] * 2 + [EventFlag.UNPRINTED] * 2
    assert log.conditions == {"regular": 4, "extended hours": 2, "odd lot": 2, "closing print": 2}
    numbers = [*traded(pack("<I", 2_728)), *traded(b"@\1\0\0")]
    events, log = read(nyse_packet(1, nyse_mapping(5, "A"), nyse_add(5, 71, 1, 90), *numbers))
    assert not events["flags"].any()
    assert not log.conditions


def test_the_second_of_a_day_that_is_sent_again_is_the_announced_one() -> None:
    def second(system: int, at: int) -> bytes:
        return nyse(2, pack("<III", system, 0, at))

    first, add = nyse_mapping(5, "A"), [nyse_add(5, order, 1, 1, ns=11) for order in range(3)]
    events, _ = read(nyse_packet(1, first, second(7, 1_000), add[0], second(8, 2_000), add[1]))
    assert events["time"].tolist()[1:] == [1_000 * 10**9 + 11] * 2, "system 8 is another's"
    events, _ = read(nyse_packet(1, first, second(7, NOON - 1), add[0]))
    assert events["time"].tolist()[1:] == [(NOON - 1) * 10**9 + 11], "a live feed goes by its packets"
    events, _ = read(nyse_packet(1, first, second(7, 1_000), second(7, NOON), add[2], second(300, 5)))
    assert events["time"].tolist()[1:] == [(NOON - 1) * 10**9 + 11]


def test_orders_from_before_the_capture_are_faults() -> None:
    delete = nyse(102, pack("<IIIQB", 4, 5, 6, 72, 0))
    replace = nyse(104, pack("<IIIQQIIBB", 4, 5, 3, 71, 72, UNIT, 20, 0, 0))
    events, log = read(nyse_packet(1, nyse_mapping(5, "A"), delete, replace))
    assert events["kind"].tolist() == [EventKind.DIRECTORY, EventKind.CANCEL]
    assert log.faults[FeedFault.UNKNOWN_ORDER]["count"] == 2


# ---- lines and numbers


def test_two_lines_are_one_stream_and_each_message_is_taken_once() -> None:
    one, two, three = (block(number, cta("TL", tape.long_trade(UNIT, number))) for number in (1, 2, 3))
    events, log = read(one, one, two, three, three, lines=("239.1.1.1", "239.1.1.2"))
    assert events["quantity"].tolist() == [1, 2, 3]
    assert log.skipped == {"messages that came twice": 2}
    assert not log.faults


def test_what_neither_line_has_is_a_gap() -> None:
    packets = [block(number, cta("CT", b""), cta("CT", b"")) for number in (1, 7, 3)]
    _, log = read(*packets)
    assert log.faults[FeedFault.GAP]["count"] == 2
    assert log.faults[FeedFault.GAP]["first"] == "messages 5 to 6 are missing"
    assert log.faults[FeedFault.GAP]["first_offset"] == 100


@pytest.mark.parametrize("last", [heartbeat, end_of_session])
def test_a_lost_tail_of_the_utp_that_the_next_number_proves_is_a_gap(last: Callable[[str, int], bytes]) -> None:
    sent = [utp_packet(number, utp("AP", b"")) for number in (1, 2, 3)]
    beats = heartbeat("UTPSESSION", 3), last("UTPSESSION", 6)
    _, log = read(*sent[:2], *beats)
    assert log.faults[FeedFault.GAP]["count"] == 3
    assert log.faults[FeedFault.GAP]["first"] == "messages 3 to 5 are missing"
    _, log = read(sent[0], heartbeat("UTPSESSION", 4), sent[2], sent[1])
    assert not log.faults, "it was ahead of its packets"


def test_a_capture_may_mix_feeds() -> None:
    itch_packets = list(packetise("ISO", 1, frame(*itch.day())))
    events, log = read(*tape.capture(), *itch_packets)
    assert {"CTA TL", "CTA QL", "UTP QE", "NYSE 100", "A", "P"} <= set(log.messages)
    assert {b"XNYS", b"XNAS"} <= set(events["floor"].tolist())


# ---- real packets

DATA = os.environ.get("ISOCAST_DATA", "")
real = pytest.mark.skipif(not DATA, reason="ISOCAST_DATA does not say where the real files are")


def real_packets(pattern: str) -> list[bytes]:
    log = FeedLog("real")
    paths = sorted((Path(DATA) / "omi_pcap").glob(pattern))
    assert paths, pattern
    return [each.payload for path in paths for each in read_capture([path.read_bytes()], log)]


@real
@pytest.mark.parametrize(
    "pattern, expected",
    [
        ("Siac/Cts.Cta.v1.91/LongTrade*", [(EventKind.TRADE, b"XNYS", b"ALLE", 808_100, 17)]),
        ("Siac/Cts.Cta.v1.91/ShortTrade*", [(EventKind.TRADE, b"XNAS", b"AMP", 1_327_300, 20)]),
        ("Siac/Cts.Cta.v2.9/LongTrade*", [(EventKind.TRADE, b"XNYS", b"GME", 271_000, 100)]),
        (
            "Siac/Cts.Cta.v2.9/Multiple*",
            [(EventKind.TRADE, b"EDGX", b"HBI", 83_600, 44), (EventKind.TRADE, b"EDGX", b"HBI", 83_600, 56)],
        ),
        ("Siac/Cts.Cta.v2.10/*", [(EventKind.CORRECTION, b"XADF", b"HL", 55_727, 33_000)]),
        ("Siac/Cts.Cta.v2.11.b/T_R*", [(EventKind.TRADE, b"EDGX", b"KSS", 133_000, 91)]),
        ("Siac/Cts.Cta.v2.11.b/T_E*", [(EventKind.TRADE_CANCEL, b"XADF", b"KRC", 0, 0)]),
        (
            "Siac/Cqs.Cta.v1.91/*",
            [(EventKind.QUOTE, b"EDGX", b"STOR", 294_500, 100), (EventKind.QUOTE, b"EDGX", b"STOR", 294_700, 100)],
        ),
        (
            "Nasdaq/Uqdf*/QuoteLong*",
            [(EventKind.QUOTE, b"EDGX", b"AMZN", 7_672_500, 300), (EventKind.QUOTE, b"EDGX", b"AMZN", 7_673_100, 200)],
        ),
        (
            "Nasdaq/Uqdf*/QuoteShort*",
            [(EventKind.QUOTE, b"EDGX", b"AKAM", 512_300, 100), (EventKind.QUOTE, b"EDGX", b"AKAM", 512_400, 100)],
        ),
    ],
)
def test_real_packets_of_the_tapes(pattern: str, expected: list[tuple[object, ...]]) -> None:
    events, log = read(*real_packets(pattern))
    assert rows(events, "kind", "floor", "symbol", "price", "quantity") == expected
    assert not log.faults


@real
def test_every_real_packet_of_the_tapes_is_read_or_counted() -> None:
    for pattern in ("Siac/C*/*", "Nasdaq/Uqdf*/*"):
        for packet in real_packets(pattern):
            _, log = read(packet)
            assert log.total_messages
            assert not log.faults


@real
def test_real_packets_of_nyse_behind_mappings_of_their_symbols() -> None:
    """The real packets are of single messages; which symbols they are about is made up here."""
    packets = real_packets("Nyse/*/*")
    indices = [2_511, 0x1366, 0xBEE5, 0x15 << 8 | 0x9A, 0xE9AF, 0x24A4, 0x6205, 0xA91, 0x1E6A, 0xA8F6, 0xE6CB, 0x56B]
    mappings = [nyse_packet(1 + place, nyse_mapping(index, f"S{place}")) for place, index in enumerate(indices)]
    log = FeedLog("x")
    feed = CaptureFeed(lambda _: ItchDecoder(Mic("XNAS"), MIDNIGHT, log), log)
    for place, packet in enumerate([*mappings, *packets]):
        feed.receive(Datagram(0, "", f"239.1.1.{place}", 9, packet, place))
    events = np.concatenate([*feed.take(), *feed.end()])
    kinds = [EventKind.ORDER, EventKind.EXECUTION, EventKind.CANCEL, EventKind.TRADE, EventKind.DIRECTORY]
    assert set(kinds) <= set(events["kind"].tolist())
    adds = events[events["kind"] == EventKind.ORDER]
    assert rows(adds, "price", "quantity", "side") == [(10_010_000, 1_200, Side.BUY), (488_700, 61, Side.BUY)]
    assert set(log.faults) <= {FeedFault.UNKNOWN_ORDER, FeedFault.UNKNOWN_SYMBOL}
