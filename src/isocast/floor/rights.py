"""Through which source of the market which message of a floor may come.

A message says what it is about; of its author a receiver knows the source that it came through, and nothing else. So

    reports of arbiters                 come through the floor's own sources
    market events under its code        the same: its trades on the tape
    what trades there, phases, halts    through those, or through its operators' sources
    corrections of confirmed trades     the same, and only with the signatures of two of its correctors, by the roster
                                        that counts at the token
    orders and all else of an account   through a source of the account's gateway, where the floor names gateways

A block with anything that its source may not send is void: its place in the sequence stays, with nothing in it, at
every receiver alike. So the floor remains a function of what was released, for customers too, who do not learn who
published it. An honest source refuses such a block at its door, and its author hears why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from isocast.floor.codec import account_of, decode_event, floor_topic
from isocast.floor.corrections import correction_topic, decode_correction, signature_fault
from isocast.floor.events import Directory, Schedule, Status, Wake
from isocast.floor.reporting import report_topic
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import GATEWAY_SHIFT, NodeId, without_incarnation
from isocast.wire.events import EVENT_DTYPE
from isocast.wire.limits import EVENT_BYTES
from isocast.wire.opaque import OpaqueMessage, is_opaque, read_opaque_or_none

__all__ = ["FloorRights", "Listed", "SourceRights"]

Listed: TypeAlias = tuple[bytes, Callable[[NodeId], bytes | None]]
"""By what signatures are judged: their market's name, and a roster's key of an id, None for a stranger's."""


@dataclass(frozen=True, slots=True)
class FloorRights:
    """Who may speak to one floor, and for it; sources are named without their incarnations."""

    code: str
    own: frozenset[NodeId]
    """The floor's sources."""
    operators: frozenset[NodeId] = frozenset()
    """Further sources that may say what an operator says."""
    gateways: Mapping[NodeId, int] = field(default_factory=dict)
    """The gateway whose accounts a source may speak for; empty: every source for every account."""
    correctors: frozenset[NodeId] = frozenset()
    """Operators of whom two may correct a confirmed trade."""

    def refuses_events(self, source: NodeId, payload: bytes | memoryview) -> str:
        """Why a source may not send a block of market events; empty: it may."""
        code = self.code.encode("ascii")
        if source in self.own or len(payload) % EVENT_BYTES or code not in bytes(payload):
            return ""
        is_ours = bool((np.frombuffer(payload, EVENT_DTYPE)["floor"] == code).any())
        return f"market events of the floor {self.code}" if is_ours else ""

    def refuses_message(self, source: NodeId, message: OpaqueMessage, listed: Listed | None = None) -> str:
        """Why a source may not send an opaque message; empty: it may."""
        if message.topic == correction_topic(self.code):
            return self._refuses_correction(source, message.payload, listed)
        if message.topic == report_topic(self.code):
            return "" if source in self.own else f"reports of the floor {self.code}"
        if message.topic != floor_topic(self.code):
            return ""
        account = account_of(message.payload)
        if account is not None and (not self.gateways or self.gateways.get(source) == account >> GATEWAY_SHIFT):
            return ""  # Whatever follows in it: nothing that this source may not say of this account.
        is_operator = source in self.own or source in self.operators
        try:
            event = decode_event(message.payload)
        except RemoteProtocolError:
            # Everybody drops it, and yet it makes a step of the floor: not for whoever has no business there.
            is_stranger = bool(self.gateways) and source not in self.gateways and not is_operator
            return f"messages of the floor {self.code}" if is_stranger else ""
        if isinstance(event, Directory | Status | Schedule | Wake):
            return "" if is_operator else f"what the operator of the floor {self.code} says"
        gateway = event.account >> GATEWAY_SHIFT
        if not self.gateways or self.gateways.get(source) == gateway:
            return ""
        return f"orders of accounts of gateway {gateway} on the floor {self.code}"

    def _refuses_correction(self, source: NodeId, payload: bytes, listed: Listed | None) -> str:
        what = f"a correction on the floor {self.code}"
        if source not in self.own and source not in self.operators:
            return what
        try:
            correction = decode_correction(payload)
        except RemoteProtocolError as reason:
            return f"{what} that cannot be read ({reason})"
        if listed is None:
            return f"{what} without a roster that says who may sign it"
        market, key_of = listed
        keys = {one: key_of(one) for one in self.correctors}
        fault = signature_fault(correction, self.code, market, keys.get)
        return f"{what} with {fault}" if fault else ""


class SourceRights:
    """The rights of a market's sources on all of its floors."""

    def __init__(self, floors: Iterable[FloorRights]) -> None:
        """Of these floors; messages of no floor, or of others, are everybody's."""
        self._floors = tuple(floors)

    def refusal(self, source: NodeId, payload: bytes | memoryview, listed: Listed | None = None) -> str:
        """What a block has that its source may not send, in a few words; empty: all is well.

        Corrections are judged by `listed`; without it they are refused.
        """
        origin = without_incarnation(source)
        if not is_opaque(payload):
            return next(filter(None, [one.refuses_events(origin, payload) for one in self._floors]), "")
        for message in read_opaque_or_none(bytes(payload)) or ():
            for floor in self._floors:
                reason = floor.refuses_message(origin, message, listed)
                if reason:
                    return reason
        return ""
