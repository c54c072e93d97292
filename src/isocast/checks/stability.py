"""S10: what leaves one site's memory is held by every member of its ring."""

from __future__ import annotations

from isocast.checks.facts import Collected
from isocast.checks.law import Report
from isocast.checks.view import View
from isocast.terms.ids import describe

__all__ = ["Stability"]


class Stability:
    """Watches what is dropped."""

    def __init__(self, view: View, report: Report) -> None:
        """Nothing is dropped yet."""
        self._view = view
        self._report = report

    def on_collected(self, fact: Collected) -> None:
        """Every member of the collecting site's ring must really hold the token."""
        collector = self._view.site(fact.site)
        epoch = self._view.epochs.get(collector.accepted)
        if epoch is None:
            self._report("S10", fact.at, f"{describe(fact.site)} collected token {fact.token_number} outside any ring")
            return
        for member in epoch.members:
            site = self._view.site(member)
            if not site.forgot and not site.shares(collector, fact.token_number):
                text = (
                    f"{describe(fact.site)} collected token {fact.token_number} in epoch {collector.accepted},"
                    f" but {describe(member)} holds {site.real}"
                )
                self._report("S10", fact.at, text)
                return
