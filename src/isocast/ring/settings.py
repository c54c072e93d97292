"""What all members of a ring agree on before they start."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from isocast.terms.ids import NodeId
from isocast.terms.timing import Gate, Timing
from isocast.wire.limits import STANDARD_PAYLOAD
from isocast.wire.packets import NewRing

__all__ = ["OrderRule", "RingSettings", "Schedule", "StartPolicy"]


class OrderRule(StrEnum):
    """The order of messages inside one token."""

    ARRIVAL = "arrival"
    """As the token's owner received them: the nearer trader wins."""
    SHUFFLE = "shuffle"
    """By a key that no single site chooses: location is worth almost nothing."""


class StartPolicy(StrEnum):
    """Whose votes suffice to start a ring (protocol §5)."""

    MAJORITY = "majority"
    """A majority of U: two rings never order different messages, and without a majority nothing is ordered."""
    AVAILABILITY = "availability"
    """Any votes, once a majority has been missing for `start_wait_ns`: the ring is marked, and may diverge."""


@dataclass(frozen=True, slots=True)
class RingSettings:
    """One ring's parameters, the same at every node of it."""

    timing: Timing
    """All times, and the release gate."""
    stripe: int = 0
    """Which stripe of the core this ring orders."""
    order: OrderRule = OrderRule.ARRIVAL
    """The order inside a token."""
    window: int = 1024
    """W: numbers that a source may be ahead of its last acknowledged message."""
    batch_max: int = 16_384
    """K_max: messages that one token acknowledges at most."""
    release_rate: int = 0
    """Packets per millisecond of paced release; 0 releases a token at one instant, as in the paper."""
    payload_max: int = STANDARD_PAYLOAD
    """Bytes of one message, its seal included: what the network's MTU carries."""
    stall_tokens: int = 64
    """G: tokens after which a secondary receiver whose secondary token is overdue no longer holds memory up."""
    policy: StartPolicy = StartPolicy.MAJORITY
    """Whose votes suffice to start a ring."""
    start_wait_ns: int = 0
    """Under `availability`: how long a majority may be missing; 0: two reformations."""
    receipts: bool | None = None
    """Whether receivers send receipts; by default only under the gate that counts them."""

    @property
    def patience_ns(self) -> int:
        """How long a server that may do without a majority waits for one."""
        return self.start_wait_ns or 2 * self.timing.reformation_ns

    @property
    def sends_receipts(self) -> bool:
        """Receipts certify a release by majority; the paper's own gate does without."""
        return self.timing.gate is Gate.MAJORITY if self.receipts is None else self.receipts


# When each token of an epoch is due, and who owns it (§5; protocol §1).


class Schedule:
    """T_t = T0+(t-t0)·τ_t, from owner ring[(t-t0) mod m]."""

    __slots__ = ("first_token", "period_ns", "ring", "size", "start")

    def __init__(self, ring: NewRing, period_ns: int) -> None:
        """The schedule of one epoch."""
        self.ring = ring.ring
        self.size = len(ring.ring)
        self.first_token = ring.first_token
        self.start = ring.start
        self.period_ns = period_ns

    def instant(self, token_number: int) -> int:
        """T_t."""
        return self.start + (token_number - self.first_token) * self.period_ns

    def owner(self, token_number: int) -> NodeId:
        """Who sends token t."""
        return self.ring[(token_number - self.first_token) % self.size]

    def next_slot(self, site: NodeId, token_number: int) -> int | None:
        """The first token from `token_number` on that `site` owns; None for a site outside the ring."""
        if site not in self.ring:
            return None
        from_token = max(token_number, self.first_token)
        place = (self.ring.index(site) - (from_token - self.first_token)) % self.size
        return from_token + place

    def last_due(self, now: int) -> int:
        """The newest token whose instant has come."""
        return self.first_token - 1 if now < self.start else self.first_token + (now - self.start) // self.period_ns
