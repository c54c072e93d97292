"""Release skew in sentences, the same wherever it is told: the figure, and beside it what is left out of it."""

from __future__ import annotations

from isocast.checks.skew import ReleaseSkew
from isocast.terms.quantities import counted

__all__ = ["left_out_words", "skew_words"]


def skew_words(skew: ReleaseSkew) -> list[str]:
    """Lines of at most 88 characters."""
    if not skew.count:
        return ["no message was released by two receivers in time", *_left_out(skew)]
    figures = [f"{span / 1e6:.1f} ms {name}" for span, name in ((skew.p50_ns, "median"), (skew.p99_ns, "p99"))]
    beyond = f"; {skew.exceeding:,} beyond it" if skew.exceeding else ""
    return [
        f"{', '.join(figures)}, {skew.max_ns / 1e6:.1f} ms at most between receivers, message by message",
        f"{skew.within:,} of {counted(skew.count, 'message')} within 2ε = {skew.bound_ns / 1e6:g} ms{beyond}",
        *([f"{skew.partly:,} of them without a receiver that was away"] if skew.partly else []),
        *[f"left out: {text}" for text in _left_out(skew)],
    ]


def left_out_words(skew: ReleaseSkew) -> str:
    """What has no skew, or is held to no bound, in one line."""
    return "; ".join(_left_out(skew))


def _left_out(skew: ReleaseSkew) -> list[str]:
    parts = []
    if skew.faulted:
        kinds = [f"{skew.late:,} too late"] * bool(skew.late)
        kinds += [f"{skew.backlog:,} owed to an earlier ring"] * bool(skew.backlog)
        parts.append(f"{counted(skew.faulted, 'fairness fault')} ({', '.join(kinds)})")
    if skew.alone:
        parts.append(f"{counted(skew.alone, 'message')} of one receiver alone")
    return parts
