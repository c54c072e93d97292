"""What a receiver is missing and keeps asking for (§2.1).

"When a receiver detects a missing message, it periodically requests the message until it receives the
message or decides that the retransmit server is inoperable": at once, then every R_n, k_r times in all.
"""

from __future__ import annotations

from isocast.ring.original.effects import Effect, RingSuspected, Suspicion, Unicast
from isocast.ring.original.packets import Item, Nack
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER

__all__ = ["Requests"]


class Requests:
    """One timer and one count for each missing item; one item in each NACK (protocol §9)."""

    __slots__ = ("_attempts_max", "_open", "_resend_ns", "_site", "due")

    def __init__(self, site: NodeId, resend_ns: int, attempts_max: int) -> None:
        """Nothing is missing yet."""
        self.due = NEVER
        """When the next NACK is sent."""
        self._site = site
        self._resend_ns = resend_ns
        self._attempts_max = attempts_max
        self._open: dict[Item, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def items(self) -> tuple[Item, ...]:
        """What is missing, in the order in which it was missed."""
        return tuple(self._open)

    def ask(self, item: Item, server: NodeId, now: int) -> tuple[Effect, ...]:
        """Ask for an item at once; one that is already asked for waits for its timer."""
        if item in self._open:
            return ()
        self._open[item] = (now + self._resend_ns, 1)
        self.due = min(self.due, now + self._resend_ns)
        return (Unicast(server, Nack(self._site, item)),)

    def settle(self, item: Item) -> None:
        """The item is here, from whomever it came."""
        if self._open.pop(item, None) is not None:
            self._set_due()

    def on_timer(self, server: NodeId, now: int) -> list[Effect]:
        """Ask again for everything that is due."""
        effects: list[Effect] = []
        if now < self.due:
            return effects
        for item, (due, attempts) in self._open.items():
            if due > now:
                continue
            used = attempts
            if used >= self._attempts_max:
                effects.append(RingSuspected(Suspicion.REQUEST))
                used = 0
            # Same key: the size of the table does not change under the loop.
            self._open[item] = (now + self._resend_ns, used + 1)
            effects.append(Unicast(server, Nack(self._site, item)))
        self._set_due()
        return effects

    def _set_due(self) -> None:
        self.due = min((due for due, _ in self._open.values()), default=NEVER)
