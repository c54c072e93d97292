"""What a market's run in the lab proves: the evidence of its journals beside the lab's own lateness.

A release that was late is listed with what may have made it so: the process itself, which says in its log how late it
came to the step that released; and the lab, if it was late while the token, its messages and its receipts were on
their way. What neither explains is the protocol's own, or the loss that the world was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isocast.checks.journals import lost
from isocast.runtime.market.model import Market
from isocast.terms.ids import Label
from isocast.trials.evidence import LateRelease, MarketEvidence, read_journals, weigh
from isocast.trials.lab.report import Episode, LabReport

__all__ = ["LabVerdict", "LateInLab", "judge"]

_LATE_EVENT = "released late"


@dataclass(frozen=True, slots=True)
class LateInLab:
    """A late release, and what the process and the lab say about that time."""

    release: LateRelease
    behind_ns: int | None
    """How long the process itself had not run; None if its log does not say."""
    episodes: tuple[Episode, ...]
    """When the lab was late between the token's instant and the release."""
    late_after_ns: int

    @property
    def by_process(self) -> bool:
        """Whether it would have been in time if the process had run when it wanted to."""
        return self.behind_ns is not None and self.release.late_ns - self.behind_ns <= self.late_after_ns

    @property
    def is_explained(self) -> bool:
        """Whether the machine may have made it late, so that it proves nothing about the protocol."""
        return self.by_process or bool(self.episodes)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        own = {"late_ns": self.release.late_ns, "by_process": self.by_process, "is_explained": self.is_explained}
        return asdict(self.release) | own | {"behind_ns": self.behind_ns, "lab": [asdict(one) for one in self.episodes]}


@dataclass(frozen=True, slots=True)
class LabVerdict:
    """How it went."""

    evidence: MarketEvidence
    late: tuple[LateInLab, ...]
    promised: int
    """Messages that sources accepted from the lab's own floors."""
    lost: int
    """Those of them that some site has not released, though it ran to the end."""
    stalled: tuple[str, ...]
    """Who must have everything, ran to the end, was waited for, and has not got as far as the sites."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing was early, lost, repeated or different."""
        return self.evidence.is_sound and not self.lost and not self.stalled

    @property
    def unexplained(self) -> tuple[LateInLab, ...]:
        """Late releases that neither the process nor the lab explains."""
        return tuple(late for late in self.late if not late.is_explained)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        parts = self.evidence.as_json() | {"is_sound": self.is_sound, "promised": self.promised, "lost": self.lost}
        late = {"late": [late.as_json() for late in self.late], "late_unexplained": len(self.unexplained)}
        return parts | late | {"stalled": list(self.stalled)}


def judge(
    market: Market,
    report: LabReport,
    logs: Path,
    *,
    since_ns: int = 0,
    promised: Sequence[Label] = (),
    waited_for: Collection[str] = (),
) -> LabVerdict:
    """Read the journals, and the logs for what made releases late; nodes log to `<logs>/<name>.log`.

    `waited_for` ran to the end and had time for everything that was `promised`.
    """
    journals = read_journals(market)
    evidence = weigh(market, journals, since_ns)
    behind = {plan.name: _behind(logs / f"{plan.name}.log") for plan in market.receivers} if evidence.late else {}
    late = tuple(
        LateInLab(
            release,
            behind[release.site].get(release.first_sequence),
            report.late_within(release.instant, release.released_at),
            evidence.late_after_ns,
        )
        for release in evidence.late
    )
    there = [copy for name, copy in journals.sites.items() if name in waited_for]
    unreleased = lost(there, [(*label, None) for label in dict.fromkeys(promised)])
    stalled = [one.name for one in evidence.followers if one.behind and one.name in waited_for]
    return LabVerdict(evidence, late, len(promised), len(unreleased), tuple(stalled))


def _behind(log: Path) -> Mapping[int, int]:
    """By first sequence, how late the process came to a late release."""
    found: dict[int, int] = {}
    if not log.exists():
        return found
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if _LATE_EVENT not in line:
            continue
        try:
            said = json.loads(line)
            found[int(said["sequence"])] = int(said["behind_ns"])
        except (ValueError, KeyError, TypeError):
            continue  # A line of somebody else, or one that was cut.
    return found
