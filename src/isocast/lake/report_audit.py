"""An audit as a page: the verdict, each finding with its place, what was read, and which rules were held to."""

from __future__ import annotations

from typing import TypeAlias

from isocast.lake.audit_terms import LAWS, AuditReport, Finding, FindingKind, Verdict
from isocast.lake.report import Page, Table
from isocast.terms.ids import describe, is_site

__all__ = [
    "FINDING_HEADERS",
    "JOURNAL_HEADERS",
    "UNJUDGED_HEADERS",
    "audit_page",
    "finding_rows",
    "journal_rows",
    "note_rows",
    "unjudged_rows",
]

FINDING_HEADERS = ("what", "law", "receiver", "where", "file", "byte", "says")
JOURNAL_HEADERS = (
    "stripe", "receiver", "segments", "sequences", "messages", "events", "fetched", "uncertified",
    "unread bytes", "digest",
)  # fmt: skip

UNJUDGED_HEADERS = ("rule", "law", "count", "what and why")

_CHECKED = (
    (
        "same sequence",
        "S1",
        "a digest of every block of messages is equal at all receivers; the first difference is named",
    ),
    (
        "no gap, no duplicate",
        "S2",
        "sequences are contiguous from 1 or a journal's recorded beginning; none, nor a (source, number), occurs twice",
    ),
    ("source order", "S3", "each source's numbers follow one another"),
    (
        "no forged message",
        "S4",
        "source, number and digest are what the others have; unsealed payloads match their digest",
    ),
    ("one content a token", "S5", "epoch, instant, size and shuffle key of a token are the same everywhere"),
    ("instants rise", "S11", "tokens, epochs and scheduled instants never go back"),
    ("nothing early", "S12", "by its own clock nobody releases before the common instant; none lies before T_t+Δ_A"),
    ("every byte", "", "checksums of headers and bodies; what could not be read is a finding, never clean"),
)


def audit_page(report: AuditReport) -> Page:
    """The whole of it."""
    return Page(
        f"Audit of {report.path}",
        report.sentence,
        (
            Table("Findings", FINDING_HEADERS, finding_rows(report)),
            Table("Journals", JOURNAL_HEADERS, journal_rows(report), _digest_text(report)),
            Table("Not judged", UNJUDGED_HEADERS, unjudged_rows(report)),
            Table("Notes", ("what", "receiver", "stripe", "count", "says"), note_rows(report)),
            Table("What was checked", ("rule", "law", "how"), _CHECKED),
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
        LAWS.get(finding.kind, ""),
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
