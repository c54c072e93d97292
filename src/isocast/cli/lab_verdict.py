"""What the journals of a market in the lab prove, for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from isocast.cli.render import figure, line, show_table
from isocast.cli.skew_text import left_out_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isocast.checks.skew import Quantiles, ReleaseSkew
    from isocast.trials.lab.lateness import Episode
    from isocast.trials.lab.verdict import LateInLab, Verdict

__all__ = ["show_verdict"]

_LATE_SHOWN = 20


def show_verdict(verdict: Verdict) -> None:
    """Tables, and one sentence."""
    if not verdict.evidence.messages:
        line("The journals say nothing: no message was released. --publish 100 lets a floor publish at each source.")
        return
    show_table("What the journals prove", ("", "found", "wanted"), _rows(verdict))
    _show_late(verdict)
    _show_followers(verdict)
    for difference in verdict.evidence.differences:
        count = figure(difference.count)
        line(f"{difference.name} and {difference.other} differ from sequence {difference.sequence} on, {count} times.")
    line(_sentence(verdict))


def _sentence(verdict: Verdict) -> str:
    if not verdict.is_sound:
        return "NOT as it should be: see the table."
    if not verdict.evidence.is_simultaneous:
        return "Nothing was early, lost, repeated or different; but sites released further apart than their clocks are."
    return "As it should be: nothing was early, lost, repeated or different, and sites released together."


def _rows(verdict: Verdict) -> list[tuple[str, str, str]]:
    from isocast.trials.lab.report import short_time

    found = verdict.evidence
    lost = figure(verdict.lost) if verdict.promised else "–"
    return [
        ("messages released", f"{figure(found.messages)} in {figure(found.tokens)} tokens, at {found.sites} sites", ""),
        ("early releases", figure(found.early), "0"),
        ("skew between sites: p50 / p99 / max", _times(found.skew), f"p50 ≤ 2ε = {short_time(found.skew_bound_ns)}"),
        ("… left out", left_out_words(found.skew) or "nothing", ""),
        ("releases late: p50 / p99 / max", _times(found.lateness), ""),
        (f"later than P = {short_time(found.late_after_ns)}", figure(len(verdict.late)), ""),
        ("… that neither process nor lab explains", figure(len(verdict.unexplained)), "0"),
        ("sequences missing or repeated at a site", figure(found.missing + found.repeated), "0"),
        ("journals that differ", figure(len(found.differences)), "0"),
        ("published, and not released everywhere", lost, "0"),
        ("gaps of customers and retransmit servers", figure(found.gaps), "0"),
        ("… that did not catch up", figure(verdict.stalled), "none"),
    ]


def _times(quantiles: Quantiles | ReleaseSkew) -> str:
    from isocast.trials.lab.report import short_time

    if not quantiles.count:
        return "–"
    return " / ".join(map(short_time, (quantiles.p50_ns, quantiles.p99_ns, quantiles.max_ns)))


def _show_late(verdict: Verdict) -> None:
    if not verdict.late:
        return
    rows = [_late_row(late) for late in verdict.late[-_LATE_SHOWN:]]
    title = f"Releases later than P, beside the lab's own lateness (the last {len(rows)} of {len(verdict.late)})"
    show_table(title, ("due", "site", "token", "sequences", "late", "its process", "the lab meanwhile"), rows)


def _late_row(late: LateInLab) -> tuple[str, ...]:
    from isocast.trials.lab.report import short_time

    release = late.release
    due = datetime.fromtimestamp(release.due / 1e9, UTC).strftime("%H:%M:%S.%f")[:-3]
    if late.behind_ns is None:
        process = "not known"
    else:
        process = f"{short_time(late.behind_ns)} late" if late.behind_ns else "in time"
    sequences = f"{release.first_sequence}–{release.last_sequence}"
    lag = short_time(release.late_ns)
    return due, release.site, str(release.token_number), sequences, lag, process, _episodes(late.episodes)


def _episodes(episodes: Sequence[Episode]) -> str:
    from isocast.trials.lab.report import short_time

    if not episodes:
        return "punctual"
    worst = max(episode.worst_ns for episode in episodes)
    return f"{len(episodes)} times late, by up to {short_time(worst)}"


def _show_followers(verdict: Verdict) -> None:
    rows = [
        (
            follower.name,
            follower.role,
            figure(follower.messages),
            figure(follower.missing),
            figure(follower.repeated),
            figure(follower.behind),
        )
        for follower in verdict.evidence.followers
    ]
    if rows:
        headers = ("", "role", "messages", "missing", "repeated", "behind at the end")
        show_table("Who must have everything", headers, rows)
