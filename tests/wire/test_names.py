"""Full names in the directory: records that every snapshot has, and that nobody can forge for another symbol."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.worlds import trades

from isocast.feeds.itch_writer import ItchWriter
from isocast.feeds.outcomes import FeedLog
from isocast.hierarchy.latest import LatestTable
from isocast.terms.errors import LocalProtocolError
from isocast.terms.instruments import Instrument
from isocast.terms.market import EventFlag
from isocast.ticker.tape import Tape
from isocast.ticker.views import day_rows, symbol_views
from isocast.wire.events import are_events
from isocast.wire.names import InstrumentNames, are_names, decimals_of, name_events

COIN = Instrument("XBIN", "BTC-USDT-PERPETUAL", 8, 3)
LONG = Instrument("XLON", "ÜBERLANDWERK-" + "X" * 34)
SHARE = Instrument("XLON", "VOD")


def known(*instruments: Instrument) -> InstrumentNames:
    names = InstrumentNames()
    names.take(name_events(instruments))
    return names


@given(st.lists(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12), unique=True))
def test_names_come_back_from_their_records(texts: list[str]) -> None:
    instruments = [Instrument("XBIN", text, 9, 2) for text in texts]
    events = name_events(instruments)
    assert are_events(events.tobytes())
    names = known(*instruments)
    assert list(names) == sorted(instruments, key=lambda one: one.name)
    for one in instruments:
        assert names.name_of("XBIN", one.symbol) == one.name
        assert names.symbol_of("XBIN", one.name) == one.symbol


def test_a_snapshot_of_a_market_has_the_names() -> None:
    table = LatestTable()
    table.apply([1, 2], [name_events([COIN, SHARE, LONG]).tobytes(), trades(3).tobytes()])
    names = InstrumentNames()
    names.take(table.snapshot().events)
    assert [one.name for one in names] == [COIN.name, LONG.name]
    assert names.name_of("XLON", "VOD") == "VOD"
    assert names.symbols_of(COIN.name) == (COIN.symbol,)


def test_a_name_that_its_symbol_cannot_have_is_counted_and_left_alone() -> None:
    forged = name_events([Instrument("XBIN", "ETH-USDT-PERPETUAL", 8, 3)])
    forged["symbol"] = COIN.symbol.encode()
    broken = name_events([COIN])
    broken["price"][1] = -1
    names = known(COIN)
    names.take(forged)
    names.take(broken)
    # Each record replaces its half: the name in between is neither the old nor the new one.
    assert names.refused > 0
    assert names.name_of("XBIN", COIN.symbol) == COIN.name


def test_two_names_with_one_symbol_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isocast.terms.instruments._hashed", lambda _: "AAAAA")
    names = InstrumentNames()
    names.add(COIN)
    names.add(COIN)
    names.add(SHARE)
    assert list(names) == [COIN]
    with pytest.raises(LocalProtocolError, match="has the same symbol as BTC-USDT-PERPETUAL"):
        names.add(Instrument("XBIN", "ETH-USDT-PERPETUAL", 8, 3))


def test_decimals_of_many_symbols() -> None:
    prices, quantities = decimals_of(np.array([b"VOD", COIN.symbol.encode(), b"", b"~strange"], "S8"))
    assert (prices.tolist(), quantities.tolist()) == ([4, 8, 4, 4], [0, 3, 0, 0])


def test_the_tape_knows_names_and_scales() -> None:
    coin = Instrument("XBIN", "BTC-USDT-PERPETUAL-QUARTERLY-2026", 8, 3)
    tape, deals = Tape(), trades(2, symbols=(coin.symbol.encode(),))
    deals["floor"] = b"XBIN"
    deals["price"] = [100, 200]
    deals["quantity"] = [1_000, 3_000]
    tape.take(np.concatenate([name_events([coin]), deals]))
    [view] = symbol_views(tape)
    assert (view.symbol, view.name, view.volume) == (coin.symbol, coin.name, 4_000)
    [row] = [row for row in day_rows(tape) if row.floor]
    assert f"{row.vwap:f}" == "0.0000017500"
    assert row.listed
    assert tape.lines.all["step"].tolist() == [0], "a name is no smallest step"


def test_itch_leaves_out_what_it_has_no_form_for_and_counts_it() -> None:
    deals = trades(3, symbols=(COIN.symbol.encode(), LONG.symbol.encode(), b"VOD"))
    log = FeedLog("edge")
    midnight = int(deals["time"][0]) // (86_400 * 10**9) * 86_400 * 10**9
    events = np.concatenate([name_events([COIN, LONG]), deals])
    events["time"] = deals["time"][0]
    raw = ItchWriter(midnight, log).write(events)
    assert log.skipped["ITCH has eight characters for a name"] == 4
    assert log.skipped["ITCH has four decimals and whole shares"] == 2
    assert COIN.symbol.encode() not in raw
    assert LONG.symbol.encode() in raw
    assert are_names(events).sum() == 4
    assert int(events["flags"][0]) == EventFlag.LINKED
