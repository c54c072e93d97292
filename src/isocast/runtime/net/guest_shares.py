"""Fair shares of a door among guests, who have no seat in the market's file: by address and key, beneath a total.

Whoever asks for more than its share waits in its own line, for two seconds at most, and is named. Guests of one share
are served in turn; so are shares while the total is used up. Those who have a seat never wait here.

What guests can make a door remember is bounded: `most` connections, a third of them from one address, each left after
a minute without a request, and `SHARES_MAX` shares. A share outlives its guests: coming back makes nobody new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush, nlargest
from time import monotonic_ns

from isocast.hierarchy.archive import Bucket
from isocast.runtime.market.model import GuestTable
from isocast.terms.instants import NEVER, SECOND

__all__ = ["GRANT_MAX", "IDLE_S", "SHARES_MAX", "GuestShare", "GuestShares", "GuestVisit"]

GRANT_MAX = 1_024
"""Messages of one turn, 1.4 MB: a guest that wants more asks again, behind those that wait."""
SHARES_MAX = 4_096
"""Shares that are remembered, 1 kB each. Whoever has the key and more addresses than this gains nothing: a share that
is forgotten is full again, but beneath the same total."""
IDLE_S = 60.0
"""A guest that asks for nothing for so long is left; it comes back when it needs something."""
LOUDEST = 16
"""Throttled shares that status and metrics name: a page has an end, however many guests there are."""
_ADDRESS_PART = 3
"""One address has at most this part of all places: 64 of 192."""
_PATIENCE_S = 2.0
"""Less than the five seconds that a client waits for a door."""
_WORTHWHILE = 64
"""Messages for which waiting is better than an answer at once: single ones would cost more than they bring."""
_NAMED_NS = 10 * SECOND
"""A share is named at most once in this time: with 192 guests, no log has more than 20 lines a second of them."""


@dataclass(slots=True, eq=False)
class GuestShare:
    """What all guests of one address with one key get."""

    address: str
    key: str
    """The key's fingerprint."""
    bucket: Bucket
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    visits: int = 0
    """Connections that are open."""
    asked: int = 0
    """Messages, at most GRANT_MAX for each request."""
    served: int = 0
    refused: int = 0
    """Requests."""
    throttled: int = 0
    """Requests that had to wait for the share, or were refused."""
    named_at: int = -NEVER

    def __str__(self) -> str:
        """For people: whom to call."""
        return f"guest {self.address} (key {self.key})"


@dataclass(frozen=True, slots=True)
class GuestVisit:
    """One connection of a guest."""

    share: GuestShare
    number: int
    """Its place at the door, from 0, which nobody else has meanwhile."""


class GuestShares:
    """The guests of one door."""

    def __init__(
        self, table: GuestTable, throttled: Callable[[GuestShare], None], now: Callable[[], int] = monotonic_ns
    ) -> None:
        """`throttled` hears of a share that is used up, once in a while; `now` is a clock that nobody sets."""
        self._table = table
        self._throttled = throttled
        self._now = now
        # At once: half a second of the total, a second of a share, and never less than one turn.
        self._total = Bucket(table.total, max(table.total // 2, GRANT_MAX))
        self._turn = asyncio.Lock()
        self._shares: dict[tuple[str, str], GuestShare] = {}
        """The most recently used last."""
        self._here: dict[str, int] = {}
        """Connections by address."""
        self._free = list(range(table.most))
        self.turned_away = 0
        """Connections for which there was no place."""

    # Coming and going ---------------------------------------------------------------------------

    @property
    def present(self) -> int:
        """Guests that are connected."""
        return self._table.most - len(self._free)

    @property
    def remembered(self) -> int:
        """Shares in memory."""
        return len(self._shares)

    @contextmanager
    def visiting(self, address: str, key: str) -> Iterator[GuestVisit | None]:
        """A place at the door while the block lasts; None when this address, or the door, has none left."""
        share = self._share(address, key)
        here = self._here.get(address, 0)
        if not self._free or here >= max(self._table.most // _ADDRESS_PART, 1):
            self.turned_away += 1
            self._name(share)
            yield None
            return
        number = heappop(self._free)
        self._here[address] = here + 1
        share.visits += 1
        try:
            yield GuestVisit(share, number)
        finally:
            share.visits -= 1
            self._here[address] -= 1
            if not self._here[address]:
                del self._here[address]
            heappush(self._free, number)

    def _share(self, address: str, key: str) -> GuestShare:
        share = self._shares.pop((address, key), None)
        if share is None:
            if len(self._shares) >= SHARES_MAX:
                idle = next(place for place, other in self._shares.items() if not other.visits)
                del self._shares[idle]
            share = GuestShare(address, key, Bucket(self._table.share, max(self._table.share, GRANT_MAX)))
        self._shares[address, key] = share
        return share

    # Shares -------------------------------------------------------------------------------------

    async def grant(self, share: GuestShare, wanted: int) -> int:
        """How many messages of a request may be given now, after a wait if need be; 0: none, it is refused."""
        wanted = min(wanted, GRANT_MAX)
        share.asked += wanted
        enough = min(wanted, _WORTHWHILE)
        if share.bucket.room(self._now()) < enough:
            share.throttled += 1
            self._name(share)
        try:
            async with asyncio.timeout(_PATIENCE_S), share.turn:
                await self._wait(share.bucket, enough)
                async with self._turn:
                    await self._wait(self._total, enough)
                    given = min(wanted, share.bucket.room(self._now()), self._total.room(self._now()))
                    self._take(share, given)
        except TimeoutError:
            share.refused += 1
            return 0
        return given

    def settle(self, share: GuestShare, granted: int, given: int) -> None:
        """What was really given of a grant: journals have whole blocks, and not everything that is asked for."""
        self._take(share, max(given, 1) - granted)
        share.served += given

    def loudest(self) -> list[GuestShare]:
        """Those that were throttled most."""
        return nlargest(
            LOUDEST, [share for share in self._shares.values() if share.throttled], key=lambda share: share.throttled
        )

    def _take(self, share: GuestShare, count: int) -> None:
        now = self._now()
        share.bucket.take(count, now)
        self._total.take(count, now)

    async def _wait(self, bucket: Bucket, count: int) -> None:
        while bucket.room(self._now()) < count:  # noqa: ASYNC110 - what was given beyond a grant is taken meanwhile
            await asyncio.sleep(max(bucket.ready_at(count) - self._now(), 0) / SECOND)

    def _name(self, share: GuestShare) -> None:
        now = self._now()
        if now - share.named_at >= _NAMED_NS:
            share.named_at = now
            self._throttled(share)
