"""F4: what a token takes of what waits at its owner, and in which order.

F4  a token takes everything that waits at its owner, each source's contiguous prefix; if that is more than K_max, a
    max-min fair share of every source; and where the ring's rule is arrival, in the order in which the owner got it,
    a message that overtook its predecessor right behind it
"""

from __future__ import annotations

from isocast.checks.facts import BatchTaken
from isocast.checks.law import Law, Report, label
from isocast.terms.ids import NodeId, describe

__all__ = ["Shares"]


class Shares:
    """Watches what owners take."""

    def __init__(self, law: Law, report: Report) -> None:
        """No token yet."""
        self._batch_max = law.batch_max
        self._shuffled = law.shuffled
        self._report = report

    def on_batch(self, fact: BatchTaken) -> None:
        """An owner took its share of what waited."""
        what = f"token {fact.token_number} of {describe(fact.site)} in epoch {fact.epoch}"
        if fact.left:
            self._check_shares(fact, what)
        if not self._shuffled:
            self._check_order(fact, what)

    def _check_shares(self, fact: BatchTaken, what: str) -> None:
        count = len(fact.taken)
        source, waiting = fact.left[0]
        if count < self._batch_max:
            text = f"{what} leaves {waiting} of {describe(source)} waiting, and has room for {self._batch_max - count}"
            self._report("F4", fact.at, text)
            return
        shares: dict[NodeId, int] = {}
        for sender, _, _ in fact.taken:
            shares[sender] = shares.get(sender, 0) + 1
        most = max(shares, key=lambda sender: shares[sender])
        least, waiting = min(fact.left, key=lambda item: shares.get(item[0], 0))
        # Shares are whole numbers: those that want more may differ by one.
        if shares[most] > shares.get(least, 0) + 1:
            text = (
                f"{what} takes {shares[most]} of {describe(most)} and {shares.get(least, 0)} of {describe(least)},"
                f" which has {waiting} more"
            )
            self._report("F4", fact.at, text)

    def _check_order(self, fact: BatchTaken, what: str) -> None:
        """Each message counts from when it and all before it of its source were there."""
        there: dict[NodeId, int | None] = {}
        newest, before = -1, None
        for source, number, arrival in fact.taken:
            known = there.get(source, 0)
            ready = there[source] = None if known is None or arrival < 0 else max(known, arrival)
            if ready is None:
                continue
            if ready < newest and before is not None:
                text = f"{what} has {label(source, number)} behind {label(*before)}, which came later"
                self._report("F4", fact.at, text)
                return
            newest, before = ready, (source, number)
