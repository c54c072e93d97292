"""Reports that a person can read, as Markdown or HTML: tables, pictures of fairness, and the page of an audit."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, TypeAlias

from isocast.checks.properties import PROPERTIES
from isocast.lake.audit_terms import EVERY_BYTE, AuditReport, Finding, FindingKind, Verdict
from isocast.lake.timing_advice import Advice
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import describe, is_site

__all__ = [
    "FINDING_HEADERS",
    "JOURNAL_HEADERS",
    "UNJUDGED_HEADERS",
    "Page",
    "ReportTable",
    "audit_page",
    "draw_delays",
    "draw_skew",
    "finding_rows",
    "journal_rows",
    "note_rows",
    "unjudged_rows",
    "write_page",
]


_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 0.5rem 0 1.5rem; display: block; overflow-x: auto; }
th, td { text-align: left; padding: 0.2rem 0.8rem 0.2rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
th { font-weight: 600; }
td { font-variant-numeric: tabular-nums; }
img { max-width: 100%; background: #fff; }
.verdict { font-size: 1.15rem; padding: 0.6rem 0.9rem; border-left: 0.4rem solid #888; background: #8881; }
.good { border-color: #2a8f4d; }
.bad { border-color: #c0392b; }
"""
_MEDIA = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True, slots=True)
class ReportTable:
    """One table with its title and a word about it."""

    title: str
    headers: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    text: str = ""
    picture: Path | None = None
    """A PNG or SVG that shows the same."""


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report."""

    title: str
    sentence: str
    tables: tuple[ReportTable, ...]
    good: bool | None = None
    """Whether the sentence is good news; None where it is neither."""

    def as_markdown(self) -> str:
        """For repositories and mails."""
        parts = [f"# {self.title}", f"**{_cell(self.sentence)}**"]
        for table in self.tables:
            parts.append(f"## {table.title}")
            if table.text:
                parts.append(table.text)
            if table.picture is not None:
                parts.append(f"![{table.title}]({table.picture.name})")
            if table.rows:
                lines = [table.headers, ["---"] * len(table.headers), *table.rows]
                parts.append("\n".join("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in lines))
            else:
                parts.append("None.")
        return "\n\n".join(parts) + "\n"

    def as_html(self) -> str:
        """One file that needs no other: style and pictures are inside."""
        kind = "" if self.good is None else " good" if self.good else " bad"
        parts = [f"<h1>{escape(self.title)}</h1>", f'<p class="verdict{kind}">{escape(self.sentence)}</p>']
        for table in self.tables:
            parts.append(f"<h2>{escape(table.title)}</h2>")
            if table.text:
                parts.append(f"<p>{escape(table.text)}</p>")
            if table.picture is not None:
                parts.append(_image(table.picture, table.title))
            parts.append(_html_table(table) if table.rows else "<p>None.</p>")
        head = f'<meta charset="utf-8"><title>{escape(self.title)}</title><style>{_STYLE}</style>'
        return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _html_table(table: ReportTable) -> str:
    head = "".join(f"<th>{escape(header)}</th>" for header in table.headers)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _image(picture: Path, title: str) -> str:
    data = b64encode(picture.read_bytes()).decode("ascii")
    return f'<p><img alt="{escape(title)}" src="data:{_MEDIA[picture.suffix.lower()]};base64,{data}"></p>'


def write_page(page: Page, path: Path) -> None:
    """By the file's name: .md or .html; ConfigurationError for another, or if it cannot be written."""
    suffix = path.suffix.lower()
    if suffix not in {".md", ".html", ".htm"}:
        raise ConfigurationError("command line", "--report", f"must end in .md or .html, not {path.name}")
    try:
        path.write_text(page.as_markdown() if suffix == ".md" else page.as_html(), encoding="utf-8")
    except OSError as reason:
        raise ConfigurationError(str(path), "--report", f"cannot be written: {reason.strerror}") from None


# Pictures of a fairness report: how far behind the first each site released, and when tokens were heard.


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


# An audit as a page: the verdict, each finding with its place, what was read, and which rules were held to.


FINDING_HEADERS = ("what", "law", "receiver", "where", "file", "byte", "says")
JOURNAL_HEADERS = (
    "stripe", "receiver", "segments", "sequences", "messages", "events", "fetched", "uncertified",
    "unread bytes", "digest",
)  # fmt: skip

UNJUDGED_HEADERS = ("rule", "law", "count", "what and why")

_CHECKED = (
    *[
        (PROPERTIES[name].title, name, PROPERTIES[name].in_journals)
        for name in ("S1", "S2", "S3", "S4", "S5", "S11", "S12")
    ],
    (EVERY_BYTE, "", "checksums of headers and bodies; what could not be read is a finding, never clean"),
)


def audit_page(report: AuditReport) -> Page:
    """The whole of it."""
    return Page(
        f"Audit of {report.path}",
        report.sentence,
        (
            ReportTable("Findings", FINDING_HEADERS, finding_rows(report)),
            ReportTable("Journals", JOURNAL_HEADERS, journal_rows(report), _digest_text(report)),
            ReportTable("Not judged", UNJUDGED_HEADERS, unjudged_rows(report)),
            ReportTable("Notes", ("what", "receiver", "stripe", "count", "says"), note_rows(report)),
            ReportTable("What was checked", ("rule", "law", "how"), _CHECKED),
        ),
        report.verdict is Verdict.CLEAN,
    )


def _digest_text(report: AuditReport) -> str:
    return (
        f"Blocks of {report.block_messages:,} messages: {report.blocks_compared:,} compared, "
        f"{report.blocks_different:,} different. Receivers that hold the same have one digest."
    )


_Names: TypeAlias = dict[tuple[int, int], str]


def _names(report: AuditReport) -> _Names:
    return {(cover.stripe, cover.receiver): cover.name for cover in report.covers}


def _name(names: _Names, stripe: int, receiver: int) -> str:
    known = names.get((stripe, receiver), "")
    said = describe(receiver)
    return said if known in ("", said) else f"{known} ({said})" if is_site(receiver) else known


def finding_rows(report: AuditReport, limit: int | None = None) -> list[tuple[str, ...]]:
    """One for each; the most telling kinds first."""
    names = _names(report)
    order = {kind: place for place, kind in enumerate(FindingKind)}
    findings = sorted(report.findings, key=lambda each: (order[each.kind], each.stripe, each.sequence or 0))
    return [_row(finding, names) for finding in findings[:limit]]


def _row(finding: Finding, names: _Names) -> tuple[str, ...]:
    return (
        finding.kind.value,
        finding.broken,
        _name(names, finding.stripe, finding.receiver),
        finding.place,
        finding.file,
        "" if finding.offset is None else f"{finding.offset:,}",
        finding.text,
    )


def journal_rows(report: AuditReport) -> list[tuple[str, ...]]:
    """One for each receiver and stripe."""
    names = _names(report)
    return [
        (
            str(cover.stripe),
            _name(names, cover.stripe, cover.receiver),
            f"{cover.segments:,}",
            "–" if cover.first_sequence is None else f"{cover.first_sequence:,} – {cover.last_sequence:,}",
            f"{cover.messages:,}",
            f"{cover.events:,}",
            f"{cover.fetched:,}",
            f"{cover.uncertified:,}",
            f"{cover.unread_bytes:,}",
            cover.digest[:12],
        )
        for cover in report.covers
    ]


def unjudged_rows(report: AuditReport) -> list[tuple[str, ...]]:
    """What could not be held to a rule; what decides the verdict first."""
    ordered = sorted(report.unjudged, key=lambda each: not each.decides)
    return [(each.rule, each.law, f"{each.count:,}", each.text) for each in ordered]


def note_rows(report: AuditReport) -> list[tuple[str, ...]]:
    """What is no fault."""
    names = _names(report)
    return [
        (note.code, _name(names, note.stripe, note.receiver), str(note.stripe), f"{note.count:,}", note.text)
        for note in report.notes
    ]
