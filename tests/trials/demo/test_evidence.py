"""Evidence: journals that agree are believed, and every way in which one can be wrong is found and named."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.trials.demo.canned import FLOOR, PUBLISHED, canned_market, write_journals

from isocast.runtime.market.model import Market
from isocast.terms.instants import MILLISECOND
from isocast.trials.demo.summary import MarketProof, read_proof
from isocast.trials.evidence import journal_of
from isocast.wire.journal_blocks import ReleasedBlock

Change = Callable[[list[ReleasedBlock]], list[ReleasedBlock]]
ALL = {FLOOR.mic: PUBLISHED}


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return canned_market(tmp_path)


def judged(market: Market, name: str = "", change: Change | None = None) -> MarketProof:
    write_journals(market, {} if change is None else {name: change})
    return read_proof(market, ALL)


def test_journals_that_agree_prove_one_sequence(market: Market) -> None:
    evidence = judged(market)
    assert evidence.faults == []
    assert (evidence.messages, evidence.events) == (20, PUBLISHED)
    assert evidence.by_floor == ALL
    assert len(evidence.copies) == 10, "seven receivers, the archive and two complete customers"
    assert {(copy.messages, copy.gaps, copy.early) for copy in evidence.copies.values()} == {(20, 0, 0)}


@pytest.mark.parametrize("name", ["tokyo", "singapore", "fund", "archive"])
def test_a_gap_is_found(name: str, market: Market) -> None:
    # A writer refuses a gap, so the journal begins anew behind it.
    write_journals(market, {name: lambda blocks: blocks[2:]})
    evidence = read_proof(market, ALL)
    assert evidence.faults == [f"{name}: sequences 1 to 8 are missing (S2)"]
    assert evidence.copies[name].gaps == 8


def test_a_receiver_that_stops_short_is_found(market: Market) -> None:
    evidence = judged(market, "mumbai", lambda blocks: blocks[:3])
    assert evidence.faults == ["mumbai: ends before sequence 13; others have up to 20 (L1)"]
    assert evidence.copies["mumbai"].gaps == 8


def test_an_early_release_is_found(market: Market) -> None:
    def early(blocks: list[ReleasedBlock]) -> list[ReleasedBlock]:
        return [*blocks[:-1], replace(blocks[-1], released_at=blocks[-1].due - 3 * MILLISECOND)]

    evidence = judged(market, "london", early)
    assert evidence.faults == ["london: token 5 was released 3,000,000 ns before its instant (S12)"]
    assert evidence.copies["london"].early == 4


def test_an_instant_that_was_moved_forward_is_early_too(market: Market) -> None:
    """Nothing is out before T_t+Δ_A, whatever a journal calls its due instant."""

    def moved(blocks: list[ReleasedBlock]) -> list[ReleasedBlock]:
        earlier = blocks[1].due - MILLISECOND
        return [blocks[0], replace(blocks[1], due=earlier, released_at=earlier), *blocks[2:]]

    assert judged(market, "tokyo", moved).faults == [
        "tokyo: token 2 was released 1,000,000 ns before its instant (S12)"
    ]


def test_a_customer_that_heard_it_early_is_found(market: Market) -> None:
    def early(blocks: list[ReleasedBlock]) -> list[ReleasedBlock]:
        instant = blocks[0].due - MILLISECOND
        return [replace(blocks[0], due=instant, released_at=instant), *blocks[1:]]

    assert judged(market, "bank", early).faults == ["bank: token 1 was released 1,000,000 ns before its instant (S12)"]


def test_a_wrong_order_is_found(market: Market) -> None:
    def swapped(blocks: list[ReleasedBlock]) -> list[ReleasedBlock]:
        first, second, *rest = blocks[0].messages
        return [replace(blocks[0], messages=[second, first, *rest]), *blocks[1:]]

    evidence = judged(market, "hong-kong", swapped)
    assert "hong-kong: sequence 1 is another message than elsewhere: the order differs (S1)" in evidence.faults
    assert evidence.copies["hong-kong"].strange == 4, "two messages, by label and by content"


def test_another_content_is_found(market: Market) -> None:
    def forged(blocks: list[ReleasedBlock]) -> list[ReleasedBlock]:
        source, number, digest, payload = blocks[0].messages[0]
        return [
            replace(blocks[0], messages=[(source, number, digest, payload[48:]), *blocks[0].messages[1:]]),
            *blocks[1:],
        ]

    assert judged(market, "fund", forged).faults == ["fund: sequence 1 has another content than elsewhere (S1)"]


def test_a_lost_event_is_found(market: Market) -> None:
    write_journals(market)
    evidence = read_proof(market, {FLOOR.mic: PUBLISHED + 2})
    assert evidence.faults == [f"XNYS: 2 of {PUBLISHED + 2} events are in no journal, the first is number 61 (L1)"]
    assert read_proof(market, None).faults == [], "nobody says what was published"


def test_a_repeated_event_is_found(market: Market) -> None:
    def repeated(blocks: list[ReleasedBlock]) -> list[ReleasedBlock]:
        again = replace(blocks[1], messages=[*blocks[1].messages[:-1], blocks[0].messages[0]])
        return [blocks[0], again, *blocks[2:]]

    names = [plan.name for plan in market.receivers] + ["archive", "bank", "fund"]
    write_journals(market, dict.fromkeys(names, repeated))
    faults = read_proof(market, ALL).faults
    assert any("in the sequence more than once" in fault for fault in faults)
    assert any("its own order is not kept" in fault for fault in faults)
    assert any("in no journal" in fault for fault in faults)


def test_a_damaged_journal_is_named(market: Market) -> None:
    write_journals(market)
    (segment,) = journal_of(market, "seoul").glob("*.isoj")
    raw = bytearray(segment.read_bytes())
    raw[200] ^= 1
    segment.write_bytes(raw)
    faults = read_proof(market, ALL).faults
    assert any(fault.startswith("seoul: its journal is damaged: ") for fault in faults)


def test_a_missing_journal_is_named(market: Market) -> None:
    faults = read_proof(market, {}).faults
    assert "tokyo: has no journal" in faults
    assert len(faults) == 10
