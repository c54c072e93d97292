"""A floor from a journal: its trades, its book, and whether its arbiters said the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.floor.cases import BUY, SELL, order
from tests.floor.keys import key_in_order
from tests.runtime.disk.journals import write
from tests.wire.journal_samples import PERIOD, block

from isocast.floor.arbiter import Arbiter, TokenReleased
from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.corrections import correction_topic
from isocast.floor.events import Directory, Event, Phase, Report, Trade
from isocast.floor.fast import FastFloor
from isocast.floor.following import FloorFollower, FloorMessage
from isocast.floor.machine import Floor
from isocast.floor.reporting import FloorReport, cut_report, encode_report, report_topic
from isocast.floor.snapshot import fold, unfold
from isocast.floor.state import state_hash
from isocast.runtime.disk.floor_journal import JournalFloor, floors_of, kept_floors
from isocast.runtime.disk.journal_reader import JournalReader
from isocast.runtime.market.floors import floor_state_file
from isocast.terms.errors import JournalError
from isocast.wire.journal_blocks import ReleasedBlock
from isocast.wire.opaque import OpaqueMessage, cut_opaque

CODE = "XISO"
TOKENS: list[list[Event]] = [
    [Directory("ISO", phase=Phase.OPEN)],
    [order(1, SELL, 100, 1002), order(2, SELL, 50, 1003)],
    [order(3, BUY, 120, 1005)],
    [order(4, BUY, 10, 1003), order(5, BUY, 5, 1000)],
]


def computed() -> list[FloorReport]:
    """What honest arbiters say of each token."""
    floor, found = Floor(), []
    for number, events in enumerate(TOKENS, 1):
        told = floor.step(2 * number, 2 * number * PERIOD, events)
        made = tuple(one for one in told if isinstance(one, Trade))
        found.append(FloorReport(2 * number, state_hash(floor), 0, made))
    return found


def sent(messages: Sequence[OpaqueMessage]) -> list[bytes]:
    return cut_opaque(messages, 1200)


def written(
    folder: Path,
    reports: Sequence[FloorReport],
    *,
    most: int = 1000,
    corrections: Sequence[bytes] = (),
    corrected_at: int | None = None,
) -> Path:
    """A journal: in even tokens the floor's events, in each odd one behind them the report of the token before.

    At its end there are corrections, one in a token, at an instant of their own if one is given.
    """
    released: list[ReleasedBlock] = [block(1, 1, (None,))]
    sequence = 2
    by_token = {report.token: report for report in reports}
    for number, events in enumerate(TOKENS, 1):
        entered = [(floor_topic(CODE), encode_event(event)) for event in events]
        payloads = sent([OpaqueMessage(*one) for one in entered])
        payloads += sent([OpaqueMessage("news", b"of others")])
        key = key_in_order(floor_topic(CODE), entered)
        released.append(replace(block(2 * number, sequence, payloads), shuffle_key=key))
        sequence += len(payloads)
        report = by_token.get(2 * number)
        if report is not None and report.trades:
            parts = [OpaqueMessage(report_topic(CODE), encode_report(one)) for one in cut_report(report, most)]
            payloads = [payload for part in parts for payload in sent([part])]
            told = block(2 * number + 1, sequence, payloads)
            site = told.messages[0][0]
            one_site = [
                (site, place, digest, payload) for place, (_, _, digest, payload) in enumerate(told.messages, 1)
            ]
            released.append(replace(told, messages=one_site))
            sequence += len(payloads)
    for number, correction in enumerate(corrections, 2 * len(TOKENS) + 2):
        told = block(number, sequence, sent([OpaqueMessage(correction_topic(CODE), correction)]))
        later = 0 if corrected_at is None else corrected_at - told.instant
        due, out = told.due + later, told.released_at + later
        released.append(replace(told, instant=told.instant + later, due=due, released_at=out))
        sequence += 1
    write(folder, released)
    return folder


class _NewestFirst(FastFloor):
    """Gives a trade to the second of those that wait."""

    def apply(self, event: Event) -> list[Report]:
        return [one._replace(sell=2) if isinstance(one, Trade) else one for one in super().apply(event)]


def test_trades_that_break_price_and_time_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever program computes them: the rule is stated apart from the matching."""
    where = written(tmp_path / "j", [])
    assert JournalFloor(where, CODE).verify().is_equal
    monkeypatch.setattr(FloorFollower, "floor_class", _NewestFirst)
    verdict = JournalFloor(where, CODE).verify()
    assert not verdict.is_equal
    assert (verdict.breaches[0].property, verdict.breaches[0].token) == ("T4", 6)
    assert "order 1 at 1002 comes first" in verdict.breaches[0].text


def test_honest_reports_are_equal(tmp_path: Path) -> None:
    reports = computed()
    reports[3] = reports[3]._replace(confirmed=2)
    verdict = JournalFloor(written(tmp_path / "j", reports), CODE).verify()
    assert verdict.is_equal
    assert (verdict.steps, verdict.events, verdict.trades, verdict.volume) == (4, 6, 3, 130)
    assert (verdict.reports, verdict.equal, verdict.unreported, verdict.confirmed) == (2, 2, 0, 2)
    assert verdict.state == reports[3].state.hex()
    assert floors_of(tmp_path / "j") == [CODE]


def test_a_report_in_parts_is_one_report(tmp_path: Path) -> None:
    verdict = JournalFloor(written(tmp_path / "j", computed(), most=100), CODE).verify()
    assert verdict.is_equal
    assert (verdict.reports, verdict.equal) == (2, 2)


def test_the_first_difference_is_said(tmp_path: Path) -> None:
    reports = computed()
    first, second = reports[2].trades
    reports[2] = reports[2]._replace(trades=(first, second._replace(price=1004)))
    reports[3] = reports[3]._replace(state=bytes(32))
    verdict = JournalFloor(written(tmp_path / "j", reports), CODE).verify()
    assert not verdict.is_equal
    assert [(one.token, one.what) for one in verdict.differences] == [(6, "trade 2"), (8, "state")]
    assert "20 at 1003" in verdict.differences[0].here
    assert "20 at 1004" in verdict.differences[0].reported
    assert (verdict.unreported, verdict.first_unreported) == (2, 6)


def test_trades_that_are_missing_or_of_no_token_differ(tmp_path: Path) -> None:
    reports = computed()
    reports[2] = reports[2]._replace(trades=reports[2].trades[:1])
    reports[0] = reports[0]._replace(trades=reports[3].trades)
    verdict = JournalFloor(written(tmp_path / "j", reports), CODE).verify()
    assert [(one.token, one.what) for one in verdict.differences] == [(2, "token"), (6, "trades")]


def test_the_book_at_a_token_and_the_trades_up_to_it(tmp_path: Path) -> None:
    where = written(tmp_path / "j", computed())
    early = JournalFloor(where, CODE)
    assert list(early.trades(5)) == []
    assert [one.id for one in early.floor.symbols["ISO"].book] == [1, 2]
    late = JournalFloor(where, CODE)
    assert [(one.token, one.trade.number) for one in late.trades()] == [(6, 1), (6, 2), (8, 3)]
    assert [one.id for one in late.floor.symbols["ISO"].book] == [5, 2]


def test_a_journal_without_its_beginning_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "j", [block(4, 7, (None,))])
    with pytest.raises(JournalError, match="begins with sequence 7"):
        JournalFloor(tmp_path / "j", CODE)


# The state that is kept beside a journal ---------------------------------------------------------------------------


def kept_beside(journal: Path, *, up_to: int = 7) -> Arbiter:
    """What the site of a journal keeps when these tokens are released and stable."""
    released: dict[int, list[FloorMessage]] = {number: [] for number in range(1, up_to + 1)}
    for header, _, sequence, _, message in JournalReader(journal).opaque_messages():
        if header.token_number <= up_to:
            released[header.token_number].append(
                FloorMessage(sequence, message.topic, message.payload, header.shuffle_key, 1)
            )
    arbiter = Arbiter(CODE, 1)
    for number, messages in released.items():
        arbiter.step(TokenReleased(number, number * PERIOD, number, 1, (1,), tuple(messages)))
    floor_state_file(journal.parent, CODE).write_bytes(arbiter.snapshot())
    return arbiter


def as_it_stands(journal: Path, last_token: int | None = None) -> tuple[int, list[int], bytes]:
    """Behind which token a floor is computed, the tokens that are, and the state then."""
    followed = JournalFloor(journal, CODE, is_whole=False, last_token=last_token)
    steps = [step.token for step in followed.steps(last_token)]
    return followed.begun_at, steps, state_hash(followed.floor)


def test_a_floor_is_computed_from_the_kept_state_that_a_report_names(tmp_path: Path) -> None:
    reports = computed()
    where = written(tmp_path / "j", reports)
    assert kept_beside(where).agreed_token == 6
    assert as_it_stands(where) == (6, [8], reports[3].state)
    assert as_it_stands(where, 6) == (6, [], reports[2].state)
    assert kept_floors(where) == [CODE]


def test_a_kept_state_behind_the_token_that_is_asked_for_is_not_used(tmp_path: Path) -> None:
    reports = computed()
    where = written(tmp_path / "j", reports)
    kept_beside(where)
    assert as_it_stands(where, 4) == (0, [2, 4], reports[1].state)


@pytest.mark.parametrize("said", ["another state", "nothing"])
def test_a_kept_state_that_no_report_names_is_not_used(tmp_path: Path, said: str) -> None:
    reports = computed()
    kept_beside(written(tmp_path / "honest" / "j", reports))
    state = floor_state_file(tmp_path / "honest", CODE).read_bytes()
    reports[2] = reports[2]._replace(state=bytes(32)) if said == "another state" else reports[2]._replace(trades=())
    where = written(tmp_path / "j", reports)
    floor_state_file(tmp_path, CODE).write_bytes(state)
    assert as_it_stands(where) == (0, [2, 4, 6, 8], reports[3].state)


def test_a_kept_state_with_another_book_is_not_used(tmp_path: Path) -> None:
    reports = computed()
    where = written(tmp_path / "j", reports)
    arbiter = kept_beside(where)
    rows = unfold(arbiter.snapshot())
    rows["follower"]["floor"]["symbols"][0]["orders"][0][5] += 1
    floor_state_file(tmp_path, CODE).write_bytes(fold(rows))
    assert as_it_stands(where) == (0, [2, 4, 6, 8], reports[3].state)


@pytest.mark.parametrize("bytes_kept", [b"", b"damaged"])
def test_a_damaged_state_is_not_used(tmp_path: Path, bytes_kept: bytes) -> None:
    reports = computed()
    where = written(tmp_path / "j", reports)
    floor_state_file(tmp_path, CODE).write_bytes(bytes_kept)
    assert as_it_stands(where) == (0, [2, 4, 6, 8], reports[3].state)


def test_trades_behind_a_kept_state_stand_as_in_the_whole_journal(tmp_path: Path) -> None:
    reports = computed()
    reports[3] = reports[3]._replace(confirmed=3)
    where = written(tmp_path / "j", reports)
    kept_beside(where)
    assert JournalFloor(where, CODE, is_whole=False).trades() == JournalFloor(where, CODE).trades()[-1:]
