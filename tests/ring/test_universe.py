"""U as a function of the log (protocol §5)."""

from __future__ import annotations

import pytest
from tests.ring.makers import Chain, ledger_of, receipt, receiver

from isocast.ring.ledger import forced_universe, universe_after
from isocast.terms.ids import server_id
from isocast.wire.orders import force_entry
from isocast.wire.packets import ControlEntry, ControlKind

SERVER = server_id(1)
ADD4 = ControlEntry(ControlKind.ADD_SITE, 4, b"")
REMOVE3 = ControlEntry(ControlKind.REMOVE_SITE, 3, b"")
REMOVE2 = ControlEntry(ControlKind.REMOVE_SITE, 2, b"")


def changed(*controls: tuple[ControlEntry, ...]) -> Chain:
    chain = Chain()
    for control in controls:
        chain.add(control=control)
    return chain


@pytest.mark.parametrize(
    "control, universe",
    [
        ((ADD4,), (1, 2, 3, 4)),
        ((REMOVE3,), (1, 2)),
        ((REMOVE3, REMOVE2), (1, 2)),
        ((force_entry(SERVER, (2, 5)),), (2, 5)),
    ],
    ids=["add", "remove", "never below two", "force"],
)
def test_u_follows_from_control_entries(control: tuple[ControlEntry, ...], universe: tuple[int, ...]) -> None:
    assert universe_after((1, 2, 3), changed(control).entries[0].token) == universe


def test_a_forced_change_names_who_forced_it_and_to_what() -> None:
    token = changed((force_entry(SERVER, (2, 3)),)).entries[0].token
    assert forced_universe(token) == (2, 3)
    assert token.control[0].subject == SERVER
    assert forced_universe(changed((ADD4,)).entries[0].token) is None


def test_changes_that_undo_each_other_are_changes_all_the_same() -> None:
    found = ledger_of(changed((ADD4,), (ControlEntry(ControlKind.REMOVE_SITE, 4, b""),)))
    assert found.universe == (1, 2, 3)
    assert found.uncertified_change(1) == (2, (1, 2, 3, 4))
    assert found.uncertified_change(2) == (0, (1, 2, 3))


def test_a_change_that_another_one_follows_was_certified_before_that_one_was_issued() -> None:
    found = ledger_of(changed((ADD4,), (), (REMOVE3,)))
    assert (found.settled_change, found.uncertified_change(0)) == (1, (3, (1, 2, 3, 4)))
    assert ledger_of(changed((ADD4,), ())).settled_change == 0
    assert ledger_of(changed((ADD4,), (force_entry(SERVER, (1, 2)),))).settled_change == 0


def test_a_site_that_comes_later_needs_no_majority_of_a_u_that_is_gone() -> None:
    """Sites 2 and 3 have left for good: whoever was away meanwhile must not wait for their receipts."""
    steps = [(ADD4,), (ControlEntry(ControlKind.ADD_SITE, 5, b""),), (REMOVE2,), (REMOVE3,), ()]
    chain = changed(*steps)
    machine = receiver(4, chain)
    assert machine.certificates.certified == 3
    machine.on_receipt(receipt(5, chain), chain.entries[-1].token.instant)
    assert machine.certificates.certified == 5


def test_either_majority_certifies_a_change() -> None:
    """Any majority of U before a change and any of U after it share a site."""
    chain = changed((), (REMOVE3,))
    for other in (2, 3):
        machine = receiver(1, chain)
        machine.on_receipt(receipt(other, chain), chain.entries[-1].token.instant)
        assert machine.certificates.certified == 2


def test_a_forced_change_settles_what_came_before_and_needs_no_certificate() -> None:
    """Protocol §5: an operator's forced change, for a majority that will never come back."""
    found = ledger_of(changed((ADD4,), (force_entry(SERVER, (1, 2)),)))
    assert found.uncertified_change(0) == (0, (1, 2))


def test_what_was_cut_back_has_changed_nothing() -> None:
    found = ledger_of(changed((ADD4,), ()))
    found.truncate(0)
    assert (found.universe, found.uncertified_change(0)) == ((1, 2, 3), (0, (1, 2, 3)))


def test_after_a_forced_change_the_new_u_certifies_everything() -> None:
    chain = changed((), (force_entry(SERVER, (1, 3)),))
    machine = receiver(1, chain)
    machine.on_receipt(receipt(2, chain), chain.entries[-1].token.instant)
    assert machine.certificates.certified == 0
    machine.on_receipt(receipt(3, chain), chain.entries[-1].token.instant)
    assert machine.certificates.certified == 2
