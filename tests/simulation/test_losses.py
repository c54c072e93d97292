"""How many requests one lost packet causes (§5.2)."""

from __future__ import annotations

from tests.ring.makers import EPOCH, S1, Chain, message

from isocast.ring.answers import holdings
from isocast.simulation.network import SETTLE_NS, LossLedger
from isocast.wire.packets import Nack, Receipt


def nack(site: int, *numbers: int, has_token: bool = True) -> Nack:
    return Nack(0, EPOCH, site, 1, has_token, 0, holdings([(S1, number) for number in numbers]))


def test_requests_of_all_receivers_that_lack_it_are_counted() -> None:
    ledger = LossLedger()
    ledger.lost(2, (message(1),))
    ledger.lost(3, (message(1), message(2)))
    ledger.asked(2, nack(2, 1))
    ledger.asked(3, nack(3, 1))
    assert (ledger.quantile(1.0), ledger.quantile(0.5)) == (2, 0)


def test_without_the_token_everything_that_is_lacking_is_asked_for() -> None:
    ledger = LossLedger()
    ledger.lost(2, (Chain().add().token, message(1)))
    ledger.asked(2, nack(2, has_token=False))
    assert ledger.quantile(0.0) == 1


def test_a_request_by_someone_who_lost_nothing_counts_for_nothing() -> None:
    ledger = LossLedger()
    ledger.lost(2, (message(1),))
    ledger.asked(3, nack(3, 1))
    assert ledger.quantile(1.0) == 0


def test_what_is_repaired_is_not_lacking_any_more() -> None:
    ledger = LossLedger()
    ledger.lost(2, (message(1),))
    ledger.completed(2, 5)
    ledger.asked(2, nack(2, 1))
    assert ledger.quantile(1.0) == 0


def test_only_data_and_tokens_count_as_lost() -> None:
    ledger = LossLedger()
    ledger.lost(2, (Receipt(0, EPOCH, 1, 1, b""),))
    assert ledger.quantile(1.0) == 0
    assert not ledger.histogram


def test_old_losses_are_settled_so_that_memory_stays_flat() -> None:
    ledger = LossLedger()
    for number in range(1, 100):
        ledger.lost(2, (message(number),))
        ledger.completed(2, number * SETTLE_NS // 10)
    assert sum(ledger.histogram.values()) > 80
