"""Pictures of a fairness report: how far behind the first each site released, and when tokens were heard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isocast.lake.timing_advice import Advice

__all__ = ["draw_delays", "draw_skew"]

_SIZE = (9.0, 5.2)
# Told apart by eyes that see red and green alike, too.
_COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#6b4fa0",
    "#000000",
    "#999933",
    "#884422",
)
_DASHES = ("-", "--", ":", "-.")
_MS = 1e6


def _axes(title: str, across: str) -> tuple[Any, Any]:
    # Here, because matplotlib takes half a second that no other report should pay for.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=_SIZE, layout="constrained")
    axes.set_title(title, loc="left", fontsize=12)
    axes.set_xlabel(across)
    axes.set_ylabel("share of all")
    axes.set_ylim(0, 1.01)
    axes.grid(visible=True, alpha=0.25, linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _curves(axes: Any, curves: Mapping[str, Sequence[int]]) -> None:  # noqa: ANN401 - matplotlib's
    for place, (name, curve) in enumerate(sorted(curves.items())):
        shares = [step / max(len(curve) - 1, 1) for step in range(len(curve))]
        style = _DASHES[place // len(_COLOURS) % len(_DASHES)]
        colour = _COLOURS[place % len(_COLOURS)]
        axes.plot(
            [value / _MS for value in curve],
            shares,
            style,
            color=colour,
            label=name,
            linewidth=1.6,
            drawstyle="steps-post",
        )


def _mark(axes: Any, at_ns: int, text: str, colour: str, *, left: bool) -> None:  # noqa: ANN401 - matplotlib's
    """An upright line with its name along it, on a side where no other name is."""
    axes.axvline(at_ns / _MS, color=colour, linewidth=1.2, linestyle="--")
    axes.annotate(
        text,
        (at_ns / _MS, 0.3),
        (-4 if left else 4, 0),
        textcoords="offset points",
        color=colour,
        fontsize=9,
        rotation=90,
        ha="right" if left else "left",
        va="bottom",
    )


def _save(figure: Any, axes: Any, path: Path) -> None:  # noqa: ANN401 - matplotlib's
    from matplotlib import pyplot as plt  # noqa: PLC0415

    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def draw_skew(curves: Mapping[str, Sequence[int]], bound_ns: int, path: Path) -> None:
    """Of each site, the distribution of its release after the first; 2ε is marked."""
    figure, axes = _axes("Released after the first site", "milliseconds after the first release of the message")
    _curves(axes, curves)
    _mark(axes, bound_ns, f"2ε = {bound_ns / _MS:g} ms", "#c0392b", left=True)
    axes.set_xlim(left=0)
    _save(figure, axes, path)


def draw_delays(curves: Mapping[str, Sequence[int]], advice: Advice | None, path: Path) -> None:
    """Of each receiver, when it heard tokens after their instant; δ_N, present and wanted, is marked."""
    figure, axes = _axes("Tokens heard after their instant", "milliseconds after $T_t$, by the receiver's clock")
    _curves(axes, curves)
    if advice is not None:
        now, wanted = advice.present.detect_ns, advice.wanted.detect_ns
        _mark(axes, now, f"$δ_N$ now: {now / _MS:g} ms", "#777777", left=now < wanted)
        _mark(axes, wanted, f"$δ_N$ for {advice.fraction:g}: {wanted / _MS:g} ms", "#c0392b", left=now >= wanted)
    _save(figure, axes, path)
