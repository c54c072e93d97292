"""The mutant "settlement without idempotence": a gateway that settles what it hears as often as it hears it.

The simulator's mutants are of receivers and floors (`isocast.simulation.mutants`); money is a gateway's, and the
simulator has none. So this one lives beside the property test of trading, and what catches it is what that asserts:
sound books, reports that are a legal path, and as much money and as many shares as were brought.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.runtime.accounts.test_corrections import Two

from isocast.floor.corrections import CorrectionFault, Corrections
from isocast.orders.ledger import Entry
from isocast.runtime.accounts.floor_view import TokenOutcome
from isocast.runtime.accounts.order_store import Work
from isocast.runtime.accounts.sequence_steps import SequenceSteps
from isocast.runtime.accounts.trading import TradingBooks
from isocast.terms.errors import LedgerError, LocalProtocolError

CAUGHT = (AssertionError, LedgerError, LocalProtocolError)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    made = Two(tmp_path)
    yield made
    made.close()


def story(two: Two) -> None:
    """A gateway is killed and hears the sequence again; operators correct the trade, and their paper comes twice."""
    two.confirm()
    two.east.restart()
    two.follow()
    correction = two.market.correction(1, 90_000, 30)
    for _ in range(2):
        two.market.correct(correction)
        two.step()
        two.ticks()
    two.west.restart()
    two.follow()
    two.check()


def without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key says that an entry was posted before: one that comes again gets another."""
    used: dict[tuple[int, str], int] = {}
    post = Work.post

    def keyless(work: Work, entry: Entry) -> None:
        place = id(work.connection.engine), entry.key
        used[place] = used.get(place, 0) + 1
        key = entry.key if used[place] == 1 else f"{entry.key}#{used[place]}"
        post(work, Entry(key, entry.kind, entry.legs, entry.memo, entry.holder))

    monkeypatch.setattr(Work, "post", keyless)


def tokens_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that is heard again is applied again."""
    take = TradingBooks.take

    def forgetful(books: TradingBooks, outcomes: Sequence[TokenOutcome], now: int, stripe: int = 0) -> list[int]:
        memory = books._memory  # noqa: SLF001
        memory.position = memory.position._replace(token=outcomes[0].token - 1)
        return take(books, outcomes, now, stripe)

    without_keys(monkeypatch)
    monkeypatch.setattr(TradingBooks, "take", forgetful)


def dues_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was settled stays due, and is settled again with the next token."""
    settle = SequenceSteps.settle

    def keeping(steps: SequenceSteps, work: Work, instant: int) -> None:
        before = [(order, order.dues) for order in work.with_stable_dues()]
        settle(steps, work, instant)
        for order, dues in before:
            order.dues = dues

    without_keys(monkeypatch)
    monkeypatch.setattr(SequenceSteps, "settle", keeping)


def corrections_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A correction counts as often as the sequence has it."""
    fault = Corrections.fault

    def forgiving(self: Corrections, *values: object) -> CorrectionFault | None:
        found = fault(self, *values)  # type: ignore[arg-type]
        return None if found is CorrectionFault.VERSION else found

    correct = SequenceSteps._correct  # noqa: SLF001

    def twice(steps: SequenceSteps, *values: object) -> None:
        for _ in range(2):
            correct(steps, *values)  # type: ignore[arg-type]

    without_keys(monkeypatch)
    monkeypatch.setattr(Corrections, "fault", forgiving)
    monkeypatch.setattr(SequenceSteps, "_correct", twice)


def test_the_product_settles_once_and_does_not_owe_it_to_keys_alone(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    without_keys(monkeypatch)
    story(two)


@pytest.mark.parametrize("mutate", [tokens_again, dues_again, corrections_again])
def test_settlement_without_idempotence_is_caught(
    two: Two, monkeypatch: pytest.MonkeyPatch, mutate: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutate(monkeypatch)
    with pytest.raises(CAUGHT):
        story(two)
