"""Pages of the reference as tests read them: sections by title, and tables by their first column."""

import re
from pathlib import Path

__all__ = ["page", "rows", "section"]


def page(name: str) -> str:
    """The text of docs/reference/NAME.md."""
    return (Path(__file__).parents[1] / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """What stands below a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}$(.*?)(?=^#+ |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def rows(text: str, head: str) -> list[list[str]]:
    """The cells of the table whose first column is called `head`."""
    found = re.search(rf"^\| {head} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, flags=re.MULTILINE)
    assert found, head
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]
