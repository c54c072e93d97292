"""Reports that a person can read: a title, a verdict, tables and pictures, as Markdown or as one HTML file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from isocast.terms.errors import ConfigurationError

__all__ = ["Page", "Table", "write_page"]

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
class Table:
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
    tables: tuple[Table, ...]
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


def _html_table(table: Table) -> str:
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
