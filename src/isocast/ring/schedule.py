"""When each token of an epoch is due, and who owns it (§5; protocol §1)."""

from __future__ import annotations

from isocast.terms.ids import NodeId
from isocast.wire.packets import NewRing

__all__ = ["Schedule"]


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
