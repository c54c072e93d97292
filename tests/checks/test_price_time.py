"""T4, T6, T7 and T8 from a transcript: what floors do is right, and what one of them should not do is told."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given
from tests.floor.cases import BUY, SELL, order
from tests.floor.test_fast import common_flows, flows
from tests.studies.entry.test_replay import LONDON, RING, SYDNEY

from isocast.checks.floor_acts import FloorSaid, FloorTranscript, FloorWrong
from isocast.checks.floors import FloorJudges
from isocast.floor.events import (
    AuctionKind,
    Cancel,
    Commit,
    Directory,
    Event,
    Lot,
    MarketKind,
    Phase,
    Reveal,
    Share,
    Status,
)
from isocast.floor.fast import FastFloor
from isocast.floor.following import Applied
from isocast.floor.machine import Floor
from isocast.floor.rules.second_price import commitment
from isocast.floor.transcripts import transcript_of
from isocast.studies.entry.figures import entry_figures, shuffle_share
from isocast.studies.entry.replay import EntryReplay, ReplayRule, ReplaySettings
from isocast.studies.entry.stream import draw_stream


def transcripts(floor: Floor, tokens: Iterable[Iterable[Event]]) -> list[FloorTranscript]:
    found = []
    for number, token in enumerate(tokens, 1):
        applied = [Applied(None, tuple(floor.begin(number, number)))]
        applied += [Applied(event, tuple(floor.apply(event))) for event in token]
        applied.append(Applied(None, tuple(floor.end())))
        found.append(transcript_of(number, number, applied))
    return found


def judged(found: Iterable[FloorTranscript]) -> list[FloorWrong]:
    judges = FloorJudges()
    return [wrong for one in found for wrong in judges.step(one)]


def dishonest(found: list[FloorWrong]) -> list[FloorWrong]:
    """Without T8: random traders number as they like."""
    return [one for one in found if one.property != "T8"]


@given(flows())
def test_whatever_enters_price_time_and_paths_hold(tokens: list[list[Event]]) -> None:
    assert dishonest(judged(transcripts(Floor(), tokens))) == []


@given(common_flows())
def test_the_fast_floor_too(tokens: list[list[Event]]) -> None:
    assert dishonest(judged(transcripts(FastFloor(), tokens))) == []


def told(tokens: Iterable[Iterable[Event]], change: Callable[[FloorSaid], FloorSaid | None]) -> list[FloorWrong]:
    """What is wrong where a floor's reports are changed, each, or left out."""
    found = []
    for one in transcripts(Floor(), tokens):
        acts = [
            act._replace(reports=tuple(said for each in act.reports if (said := change(each)) is not None))
            for act in one.acts
        ]
        found.append(one._replace(acts=tuple(acts)))
    return judged(found)


def with_fields(said: FloorSaid, kind: str, **fields: object) -> FloorSaid:
    return FloorSaid(said.kind, {**said.fields, **fields}) if said.kind == kind else said


CONTINUOUS: list[list[Event]] = [
    [Directory("ISO", phase=Phase.OPEN)],
    [order(1, SELL, 10, 101), order(2, SELL, 10, 100), order(3, SELL, 10, 100), order(4, BUY, 5, 101)],
]
CALL: list[list[Event]] = [
    [Directory("ISO", phase=Phase.PRE_OPEN, share=Share.PRO_RATA)],
    [order(1, BUY, 60, 101), order(2, BUY, 40, 101), order(3, BUY, 5, 105), order(4, SELL, 55, 100)],
    [Status("ISO", Phase.OPEN)],
]
NONCE = bytes(range(16))
SEALED: list[list[Event]] = [
    [Directory("ISO", phase=Phase.OPEN)],
    [Lot(1, 1, "ISO", AuctionKind.SECOND_PRICE, 3, reserve=50, closes_at=4, window_ns=2, forfeit=1)],
    [Commit(2, 2, 1, 100, commitment(80, NONCE, 2, 1)), Commit(3, 3, 1, 100, commitment(95, NONCE, 3, 1))],
    [Reveal(2, 2, 80, NONCE), Reveal(3, 3, 95, NONCE)],
    [],
    [],
]


@pytest.mark.parametrize("sell", [1, 3])
def test_a_worse_price_or_a_later_order_breaks_t4(sell: int) -> None:
    assert told(CONTINUOUS, lambda said: said) == []
    found = told(CONTINUOUS, lambda said: with_fields(said, "trade", sell=sell))
    assert (found[0].property, found[0].rule, found[0].trade) == ("T4", "continuous, resting", 1)
    assert "order 2 at 100 comes first" in found[0].text


def test_another_price_than_the_rules_breaks_t4() -> None:
    (found,) = told(CONTINUOUS, lambda said: with_fields(said, "trade", price=101))
    assert "at 101, and the rule gives 100" in found.text


def test_an_auction_that_shares_otherwise_breaks_t4() -> None:
    """Pro rata: 5 for the better price, then 30 and 20 of the 50 that are left."""
    assert told(CALL, lambda said: said) == []
    swapped = {1: 2, 2: 1, 3: 3}
    found = told(CALL, lambda said: with_fields(said, "trade", buy=swapped.get(said.fields.get("buy", 0), 0)))
    assert {one.rule for one in found if one.property == "T4"} == {"uniform price, pro-rata"}
    assert "order 1 gets 20 of 55 at 101, and is due 30" in found[0].text


def test_a_last_batch_is_judged_by_the_rules_before() -> None:
    """In proportion to 30 and 10, although the new rules share by time."""
    shared: list[list[Event]] = [
        [
            Directory("ISO", phase=Phase.OPEN, market=MarketKind.BATCH),
            *(order(1, BUY, 30, 101), order(2, BUY, 10, 101), order(3, SELL, 20, 101)),
            Directory("ISO", phase=Phase.OPEN),
        ]
    ]
    assert told(shared, lambda said: said) == []
    found = told(shared, lambda said: with_fields(said, "trade", buy=2))
    assert {one.rule for one in found if one.property == "T4"} == {"uniform price, batch"}


def test_an_auction_at_a_price_where_less_would_trade_breaks_t4() -> None:
    found = told(CALL, lambda said: with_fields(said, "trade", price=105))
    assert any("could trade" in one.text for one in found)


def test_a_sealed_lot_for_the_second_bidder_or_at_the_first_price_breaks_t4() -> None:
    assert told(SEALED, lambda said: said) == []
    (first, *_) = told(SEALED, lambda said: with_fields(said, "trade", buy=2))
    (second, *_) = told(SEALED, lambda said: with_fields(said, "trade", price=95))
    assert (first.rule, second.rule) == ("second price", "second price")
    assert "bid 3 bid the most" in first.text
    assert "the second price is 80" in second.text


def test_reports_that_are_no_path_break_t6() -> None:
    too_much = told(CONTINUOUS, lambda said: with_fields(said, "trade", quantity=7))
    assert "order 4 trades 7" in next(one.text for one in too_much if one.property == "T6")
    gone: list[list[Event]] = [*CONTINUOUS, [Cancel(2, 2)], [Cancel(1, 1, 4)]]
    assert told(gone, lambda said: said) == []
    wrong = told(gone, lambda said: with_fields(said, "cancelled", id=2))
    assert [one.text for one in wrong if one.property == "T6"] == ["order 2 is cancelled, and does not work"]


def test_a_bid_that_is_opened_early_or_to_something_else_breaks_t7() -> None:
    early: list[list[Event]] = [*SEALED[:3], [], *SEALED[3:]]
    early[2], early[4] = [*SEALED[2], Reveal(2, 2, 80, NONCE)], [Reveal(3, 3, 95, NONCE)]
    assert told(early, lambda said: said) == []
    found = told(early, lambda said: None if said.kind == "refused" else said)
    assert [one.text for one in found if one.property == "T7"] == ["bid 2 of lot 1 is opened before the close"]
    other: list[list[Event]] = [*SEALED[:3], [Reveal(2, 2, 81, NONCE)], [], []]
    found = told(other, lambda said: None if said.kind == "refused" else said)
    assert "bid 2 of lot 1 opens to what was not committed" in [one.text for one in found]


def test_an_entry_behind_a_later_one_of_its_account_breaks_t8() -> None:
    overtaken: list[list[Event]] = [CONTINUOUS[0], [order(5, BUY, 1, 90, account=9), order(4, BUY, 1, 90, account=9)]]
    assert [one.text for one in judged(transcripts(Floor(), overtaken))] == [
        "entry 4 of account 9 stands behind its entry 5"
    ]
    twice: list[list[Event]] = [CONTINUOUS[0], [order(5, BUY, 1, 90, account=9), order(5, BUY, 1, 90, account=9)]]
    assert judged(transcripts(Floor(), twice)) == []


@pytest.mark.parametrize("rule, is_fair", [(ReplayRule.SHUFFLE, True), (ReplayRule.ARRIVAL, False)])
def test_first_places_are_shared_as_the_formula_says(rule: ReplayRule, is_fair: bool) -> None:  # noqa: FBT001
    """Protocol §11: London before Sydney, ring of ten cities; by arrival .600, in place of .503."""
    settings = ReplaySettings(RING, LONDON)
    window_ns = len(RING) * settings.token_period_ns
    orders = draw_stream((LONDON, SYDNEY), 60_000, np.random.default_rng(7), window_ns=window_ns, reaction_ns=0.0)
    (pair,) = entry_figures(orders, EntryReplay(orders, settings, 1).ranks(rule), rule.value).pairs
    expected = shuffle_share(RING, LONDON, SYDNEY, settings.token_period_ns)
    assert (abs(pair.share - expected) <= 0.01) is is_fair
