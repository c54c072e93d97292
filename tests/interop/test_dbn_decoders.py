"""Our reader of DBN against Databento's own: what its package writes we read, and what it reads we read alike."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zstandard
from tests.feeds import dbn_samples

from isocast.runtime.client.feed_files import FeedFile, FeedFormat, FeedOptions
from isocast.terms.market import EventFlag, EventKind, Side
from isocast.wire.events import EVENT_DTYPE, EventArray

databento: Any = pytest.importorskip(
    "databento_dbn", reason="databento-dbn is not installed: pip install databento-dbn"
)

NOON = dbn_samples.NOON
FLOORS = {2: b"XNAS", 9: b"XNYS", 43: b"ARCX"}
SYMBOLS = {5: b"AAPL", 4_294_967_295: b"BRK.B"}
HIT = {"B": Side.SELL, "A": Side.BUY, "N": Side.NONE}
OF = {"B": Side.BUY, "A": Side.SELL, "N": Side.NONE}


def metadata(schema: str, version: int) -> bytes:
    """As Databento's package encodes it."""
    mappings = [
        SimpleNamespace(
            raw_symbol=name.decode(),
            intervals=[SimpleNamespace(start_date=date(2024, 1, 1), end_date=date(2024, 1, 4), symbol=str(number))],
        )
        for number, name in SYMBOLS.items()
    ]
    made = databento.Metadata(
        dataset="EQUS.ALL",
        start=NOON,
        stype_in=databento.SType.RAW_SYMBOL,
        stype_out=databento.SType.INSTRUMENT_ID,
        schema=databento.Schema.from_str(schema),
        symbols=[name.decode() for name in SYMBOLS.values()],
        mappings=mappings,
        version=version,
    )
    return bytes(made.encode())


def records(schema: str, seed: int, count: int) -> list[Any]:
    """Random records by its constructors; every fill has an order and an instant of its own."""
    random = Random(seed)
    time, made = NOON, []
    for sequence in range(1, count + 1):
        time += random.randrange(1, 1_000)
        common = (random.choice(list(FLOORS)), random.choice(list(SYMBOLS)), time)
        price = random.randrange(1, 10**8) * 100_000
        size = random.randint(1, 900)
        side = random.choice([databento.Side.ASK, databento.Side.BID])
        last = {"sequence": sequence}
        if schema == "mbo":
            action = random.choice("ACMFT")
            made.append(
                databento.MBOMsg(
                    *common, sequence + 1_000, price, size, databento.Action(action), side, time + 9, **last
                )
            )
            continue
        if schema == "trades":
            made.append(databento.TradeMsg(*common, price, size, databento.Action.TRADE, side, 0, time + 9, **last))
            continue
        bid = random.choice([databento.UNDEF_PRICE, price - 100_000])
        level = databento.BidAskPair(bid_px=bid, ask_px=price, bid_sz=size, ask_sz=size + 1, bid_ct=1, ask_ct=2)
        action = (
            databento.Action.TRADE
            if schema == "tbbo"
            else random.choice([databento.Action.ADD, databento.Action.TRADE])
        )
        levels = level if schema != "mbp-10" else [level] * 10
        kind = databento.MBP10Msg if schema == "mbp-10" else databento.MBP1Msg
        made.append(kind(*common, price, size, action, side, 0, time + 9, levels=levels, **last))
    return made


def expected(raw: bytes) -> EventArray:
    """What events must be, record by record, by the package's own decoder."""
    decoder = databento.DBNDecoder(upgrade_policy=databento.VersionUpgradePolicy.AS_IS)
    decoder.write(raw)
    rows: list[tuple[Any, ...]] = []
    for number, each in enumerate(decoder.decode()[1:], 1):
        floor, symbol, time = FLOORS[each.publisher_id], SYMBOLS[each.instrument_id], each.ts_event
        ticks, side = each.price // 100_000, str(each.side)

        def row(
            kind: EventKind, side: Side, price: int, size: int, reference: int, number: int, flags: int = 0
        ) -> tuple[Any, ...]:
            return (kind, side, flags, floor, symbol, price, size, reference, time, number)  # noqa: B023

        if isinstance(each, databento.MBOMsg) and str(each.action) != "T":
            kind = {"A": EventKind.ORDER, "M": EventKind.REPLACE, "C": EventKind.CANCEL, "F": EventKind.EXECUTION}
            what = kind[str(each.action)]
            is_cancel, is_fill = what is EventKind.CANCEL, what is EventKind.EXECUTION
            own = Side.NONE if is_cancel else OF[side]
            reference = each.sequence if is_fill else 0
            rows.append(row(what, own, 0 if is_cancel else ticks, each.size, reference, each.order_id))
            continue
        if isinstance(each, databento.MBP1Msg | databento.MBP10Msg):
            best = each.levels[0]
            has_bid = best.bid_px != databento.UNDEF_PRICE
            bid, size = (best.bid_px // 100_000, best.bid_sz) if has_bid else (0, 0)
            rows.append(row(EventKind.QUOTE, Side.BUY, bid, size, 0, 0, EventFlag.LINKED))
            rows.append(row(EventKind.QUOTE, Side.SELL, best.ask_px // 100_000, best.ask_sz, 0, 0))
        if str(each.action) == "T":
            rows.append(row(EventKind.TRADE, HIT[side], ticks, each.size, each.sequence, number))
    return np.array(rows, EVENT_DTYPE)


def read(path: Path) -> tuple[EventArray, FeedFile]:
    feed = FeedFile(path, FeedOptions(strict=True))
    return np.concatenate([np.empty(0, EVENT_DTYPE), *feed.blocks()]), feed


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("schema", ["trades", "tbbo", "mbp-1", "mbp-10", "mbo"])
def test_what_databento_writes_is_read_as_it_reads_it(schema: str, version: int, tmp_path: Path) -> None:
    raw = metadata(schema, version) + b"".join(map(bytes, records(schema, version, 400)))
    for name, content in (("a.bin", raw), ("b.bin", zstandard.compress(raw))):
        path = tmp_path / name
        path.write_bytes(content)
        events, feed = read(path)
        assert feed.format is FeedFormat.DBN
        assert events.tobytes() == expected(raw).tobytes()
        assert feed.log.total_messages == 400
        assert feed.log.bytes_read == len(raw)


def test_databento_reads_the_files_of_our_own_tests() -> None:
    """The samples that are built by hand are what the format says."""
    decoder = databento.DBNDecoder(upgrade_policy=databento.VersionUpgradePolicy.AS_IS)
    decoder.write(dbn_samples.day())
    head, *rows = decoder.decode()
    assert head.mappings["AAPL"][0]["symbol"] == "5"
    assert [type(row).__name__ for row in rows] == [
        "SymbolMappingMsg",
        "TradeMsg",
        "MBP1Msg",
        "MBP10Msg",
        *["MBOMsg"] * 5,
        "OHLCVMsg",
    ]
    assert rows[0].stype_out_symbol == "LIVE"


def test_every_publisher_that_databento_names_has_a_floor_or_is_refused() -> None:
    from isocast.feeds.dbn import _FLOORS  # noqa: PLC0415 - the table itself is compared

    for number in range(1, 133):
        trade = databento.TradeMsg(number, 5, NOON, 1, 1, databento.Action.TRADE, databento.Side.BID, 0, NOON)
        venue = repr(trade).partition("publisher_id=")[2].partition(" ")[0].rpartition(".")[2]
        assert _FLOORS[number] == venue.encode() or not _FLOORS[number], number
