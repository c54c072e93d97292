"""Keys of a file as rows of a table in the terminal, as Markdown for the reference, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from isocast.terms.toml_files import Key

__all__ = ["key_as_json", "key_headers", "key_rows", "key_table", "markdown_table"]

_HEADERS = ("key", "symbol", "value", "default", "meaning")


def key_rows(keys: Iterable[Key], *, markdown: bool = False) -> list[tuple[str, ...]]:
    """A row for each key; without the column of symbols where no key has one."""
    tick = "`" if markdown else ""
    rows: list[tuple[str, ...]] = []
    for key in keys:
        default = key.default_text if key.default is None else f"{tick}{key.default_text}{tick}"
        rows.append((f"{tick}{key.name}{tick}", key.symbol, key.type_text, default, key.meaning))
    return rows if any(row[1] for row in rows) else [(row[0], *row[2:]) for row in rows]


def key_headers(rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The headers of `key_rows`."""
    return _HEADERS if rows and len(rows[0]) == len(_HEADERS) else ("key", *_HEADERS[2:])


def key_table(keys: Iterable[Key]) -> str:
    """The keys as a table in Markdown."""
    rows = key_rows(keys, markdown=True)
    return markdown_table(key_headers(rows), rows)


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Any table in Markdown, each row a line."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in lines)


def key_as_json(key: Key) -> dict[str, object]:
    """One key for programs; `default` is null where `otherwise` says how the value comes about."""
    return {
        "name": key.name,
        "symbol": key.symbol,
        "type": key.kind.value,
        "choices": list(key.choices),
        "default": list(key.default) if isinstance(key.default, tuple) else key.default,
        "otherwise": key.otherwise,
        "roles": list(key.roles),
        "explanation": key.explanation,
        "section": key.section,
    }
