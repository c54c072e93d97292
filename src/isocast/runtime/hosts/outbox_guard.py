"""What a source does when its outbox vanishes under it: it takes nothing more, and brings what it took to safety.

Everything that it accepted and that is not stable yet is in memory still. So it goes on sending until the ring, or a
secondary source's parent, has all of it, or nobody takes it any more; then the process ends with the reason. The next
start finds no outbox, or another one, and begins a new incarnation.
"""

from __future__ import annotations

from collections.abc import Callable

from isocast.runtime.disk.outbox_store import OutboxStore
from isocast.runtime.hosts.context import Context
from isocast.runtime.hosts.publish_door import PublishError
from isocast.terms.errors import StoreGone
from isocast.terms.instants import SECOND

__all__ = ["OutboxGuard"]

PATIENCE_NS = 30 * SECOND
"""For a ring that is being re-formed; after that the messages are named as lost."""


class OutboxGuard:
    """Looks after the outbox of one source, about once a second."""

    def __init__(self, context: Context, store: OutboxStore, owed: Callable[[], int]) -> None:
        """`owed` says how many accepted messages are nowhere else yet."""
        self.gone: StoreGone | None = None
        """Why nothing is taken any more."""
        self._context = context
        self._store = store
        self._owed = owed
        self._since = 0

    def insist(self) -> None:
        """PublishError if nothing may be accepted."""
        if self.gone is not None:
            raise PublishError(f"this source accepts nothing: {self.gone}")

    def tick(self, now: int) -> bool:
        """Look; whether the outbox was just found gone. StoreGone once there is nothing left to bring to safety."""
        if self.gone is None:
            try:
                self._store.check()
            except StoreGone as reason:
                self.gone, self._since = reason, now
                owed = self._owed()
                self._context.alarm(
                    "disk-gone",
                    f"{reason}; {owed} accepted messages are being brought to safety",
                    "see the how-to 'operate': find out who removed the data; publish at another source meanwhile",
                )
            return self.gone is not None
        owed = self._owed()
        if not owed:
            raise self.gone
        if not 0 <= now - self._since < PATIENCE_NS:
            lost = f"{owed} messages that were accepted are in nobody's hands: publish them again"
            raise StoreGone(self.gone.file, f"{self.gone.rule}; {lost}")
        return False
