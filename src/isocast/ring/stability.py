"""What everyone is known to hold (§2.1, corrected; protocol §6)."""

from __future__ import annotations

from collections.abc import Mapping

from isocast.ring.schedule import Schedule
from isocast.terms.ids import NodeId

__all__ = ["groups_floor", "knowledge_floor", "possession_floor"]


def possession_floor(token_number: int, schedule: Schedule) -> int:
    """When t is sent, every member holds everything up to t-m+1: its last m senders each had all before.

    0 while the epoch has not seen a whole cycle: what another ring's members held says nothing about this one's.
    """
    floor = token_number - schedule.size + 1
    return floor if floor >= schedule.first_token else 0


def knowledge_floor(token_number: int, schedule: Schedule) -> int:
    """When t is sent, every member knows that all hold everything up to t-2m+2 (the paper prints t-m+2)."""
    floor = token_number - 2 * schedule.size + 2
    return floor if floor >= schedule.first_token else 0


def groups_floor(reports: Mapping[NodeId, int], schedule: Schedule) -> int:
    """Every secondary group holds everything up to here: the least of what each head said in its latest token.

    0 until every member has spoken in this epoch: a head that is silent may have the group that is furthest behind.
    """
    return min([reports.get(head, 0) for head in schedule.ring])
