"""T8: the events of a token enter a floor in the order that the token's shuffle key gives them.

Computed here once more, from the accounts and the key alone, in the plainest way: every event of an account draws a
ticket; the tickets are called up, and whoever's ticket is called enters the oldest of his events that is left. Events
without an account are before all of them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final

from isocast.checks.floor_acts import FloorMoment, FloorTranscript, FloorWrong

__all__ = ["EnteredOrder"]

_PERSON: Final = b"isocast-entry"
_TICKET_BYTES: Final = 8


class EnteredOrder:
    """Compares the order of every token with its key."""

    def step(self, transcript: FloorTranscript) -> Iterator[FloorWrong]:
        """The next token."""
        acts = [act for act in transcript.acts if act.moment is FloorMoment.EVENT]
        entered = [act.place for act in acts]
        if not transcript.shuffle_key:
            return
        accounts: list[int | None] = [None] * len(acts)
        for act in acts:
            if act.place < len(acts):
                accounts[act.place] = act.fields.get("account")
        right = _called(accounts, transcript.shuffle_key)
        if entered != right:
            text = f"its events enter in the order {_told(entered)} of the sequence, and by its key in {_told(right)}"
            yield FloorWrong("T8", transcript.token, text)


def _called(accounts: Sequence[int | None], key: bytes) -> list[int]:
    """Places of the sequence, in the order in which their events enter."""
    waiting: dict[int, deque[int]] = {}
    tickets: list[tuple[bytes, int]] = []
    drawn: Counter[int] = Counter()
    for place, account in enumerate(accounts):
        if account is not None:
            waiting.setdefault(account, deque()).append(place)
            said = account.to_bytes(8, "little") + drawn[account].to_bytes(8, "little")
            tickets.append((blake2b(said, key=key, digest_size=_TICKET_BYTES, person=_PERSON).digest(), account))
            drawn[account] += 1
    ahead = [place for place, account in enumerate(accounts) if account is None]
    return ahead + [waiting[account].popleft() for _, account in sorted(tickets)]


def _told(places: Sequence[int]) -> str:
    shown = ", ".join(str(place + 1) for place in places[:8])
    return shown if len(places) <= 8 else f"{shown}, …"  # noqa: PLR2004 (enough to find the first difference)
