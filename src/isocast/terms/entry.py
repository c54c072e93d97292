"""Who is first inside a token (§7.2): the order in which a token's events enter the floor.

All events of a token have one instant, T_t. Which of them is first is a rule:

    arrival    the order of the sequence: whoever is nearer to the token's owner is first
    shuffle    a keyed shuffle over events: nearness is worth nothing, and each account's own order is kept
    batch      no event is before another: they trade in one auction, in which time gives no priority

The key is the token's shuffle key, which no single site chooses and which a journal keeps, so that anybody can compute
the order again. The places of an account are drawn as a set, one keyed hash for each of its events, and its events
fill them in its own order. The hash is over the account and the count of its event, not over the place at which the
event came: the outcome is the same whatever the order of arrival was.

Events without an account (the operator's, the floor's) come first, in their order. A LINKED event and the one that
follows move as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from hashlib import blake2b
from struct import Struct

import numpy as np

__all__ = ["EntryRule", "entry_groups", "entry_order"]

_DRAW_BYTES = 8
_DRAWN = Struct("<QQ")
"""Account and count."""
_PERSON = b"isocast-entry"
"""Keeps these hashes apart from those by which the ring shuffles messages under the same key."""


class EntryRule(Enum):
    """In which order the events of one token enter."""

    ARRIVAL = "arrival"
    SHUFFLE = "shuffle"
    BATCH = "batch"


def entry_order(accounts: Sequence[int | None], key: bytes, rule: EntryRule, linked: Sequence[bool] = ()) -> list[int]:
    """The places of a token's events, by their places in the sequence, in the order in which they enter.

    `accounts` has the account of each event, None for one without. `linked` tells which events are one with the event
    that follows; left out, none is. Under `batch` the order is that of the shuffle, which decides what is left over
    when an auction divides a level in proportion.
    """
    if rule is EntryRule.SHUFFLE and not any(linked):  # The usual one: every event moves by itself.
        moving = [place for place, account in enumerate(accounts) if account is not None]
        drawn = _drawn([account for account in accounts if account is not None], key)
        ahead = [place for place, account in enumerate(accounts) if account is None]
        return ahead + [moving[index] for index in drawn]
    return [place for group in entry_groups(accounts, key, rule, linked) for place in group]


def entry_groups(
    accounts: Sequence[int | None], key: bytes, rule: EntryRule, linked: Sequence[bool] = ()
) -> list[list[int]]:
    """The same order in groups of equal time: LINKED events, and under `batch` all events that have an account."""
    units = _units(accounts, linked)
    if rule is EntryRule.ARRIVAL:
        return units
    ahead = [unit for unit in units if accounts[unit[0]] is None]
    shuffled = _shuffled(units, accounts, key)
    if rule is EntryRule.SHUFFLE:
        return ahead + shuffled
    together = [place for unit in shuffled for place in unit]
    return [*ahead, together] if together else ahead


def _units(accounts: Sequence[int | None], linked: Sequence[bool]) -> list[list[int]]:
    """Events that move as one, in sequence order; nobody links an event of his to another account's."""
    units: list[list[int]] = []
    for place, account in enumerate(accounts):
        if place and linked and linked[place - 1] and accounts[place - 1] == account:
            units[-1].append(place)
        else:
            units.append([place])
    return units


def _shuffled(units: Sequence[list[int]], accounts: Sequence[int | None], key: bytes) -> list[list[int]]:
    """The units that have an account, in the order in which they enter."""
    owned = [(unit, account) for unit in units if (account := accounts[unit[0]]) is not None]
    return [owned[index][0] for index in _drawn([account for _, account in owned], key)]


def _drawn(owners: Sequence[int], key: bytes) -> list[int]:
    """Draw a place for each unit of these accounts; then each account's units take its places in their own order."""
    keyed = blake2b(key=key, digest_size=_DRAW_BYTES, person=_PERSON)
    counts: dict[int, int] = {}
    draws = []
    for account in owners:
        count = counts[account] = counts.get(account, -1) + 1
        state = keyed.copy()
        state.update(_DRAWN.pack(account, count))
        draws.append(state.digest())
    of = np.array(owners, np.uint64)
    by_draw = np.lexsort((of, np.frombuffer(b"".join(draws), ">u8")))
    filled = np.empty(len(draws), np.intp)
    # The n-th place that an account has by its draws is for its n-th unit.
    filled[np.argsort(of[by_draw], kind="stable")] = np.argsort(of, kind="stable")
    found: list[int] = filled.tolist()
    return found
