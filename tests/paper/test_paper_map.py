"""docs/reference/paper-map.md says the truth: what it names exists, and nothing is left out."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PAGE = ROOT / "docs" / "reference" / "paper-map.md"

SECTIONS = [
    "1",
    "2",
    "2.1",
    "3",
    "4",
    "4.1",
    "4.2",
    "4.3",
    "4.4",
    "5",
    "5.1",
    "5.2",
    "6",
    "7",
    "7.1",
    "7.2",
    "7.3",
    "8",
]
BUILT = {"done", "corrected: see deviations"}
STATUSES = BUILT | {"not yet", "context"}


class Row(NamedTuple):
    """One claim."""

    section: str
    claim: str
    modules: list[str]
    tests: list[str]
    status: str


def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and re.fullmatch(r"[1-8](\.\d)?", cells[0]):
            modules, tests = (re.findall(r"`([^`]+)`", cell) for cell in cells[2:4])
            found.append(Row(cells[0], cells[1], modules, tests, cells[4]))
    return found


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


ROWS = rows()


def test_every_section_of_the_paper_is_covered_in_order() -> None:
    assert list(dict.fromkeys(row.section for row in ROWS)) == SECTIONS
    assert [
        heading.split()[1] for heading in re.findall(r"^## .+$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    ] == SECTIONS


def test_no_row_is_broken() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| [1-8][ .]", line)]
    assert len(lines) == len(ROWS)
    assert all(row.claim for row in ROWS)
    assert {row.status for row in ROWS} <= STATUSES


def test_every_module_exists() -> None:
    named = {module for row in ROWS for module in row.modules}
    assert [module for module in sorted(named) if not (ROOT / "src" / "isocast" / f"{module}.py").is_file()] == []


def test_every_test_exists() -> None:
    known: dict[str, set[str]] = {}
    missing = []
    for test in sorted({test for row in ROWS for test in row.tests}):
        file, _, function = test.partition("::")
        if file not in known:
            known[file] = functions(HERE / file) if (HERE / file).is_file() else set()
        if function not in known[file]:
            missing.append(test)
    assert missing == []


@pytest.mark.parametrize("path", sorted(HERE.glob("test_section_*.py")), ids=lambda path: path.stem)
def test_every_claim_that_is_tested_is_on_the_page(path: Path) -> None:
    listed = {test.partition("::")[2] for row in ROWS for test in row.tests if test.startswith(f"{path.name}::")}
    assert functions(path) - listed == set()


def test_what_is_done_names_a_module_and_a_test() -> None:
    assert [row.claim for row in ROWS if row.status in BUILT and not (row.modules and row.tests)] == []


def test_what_is_not_done_names_no_test() -> None:
    assert [row.claim for row in ROWS if row.status not in BUILT and row.tests] == []


def test_no_claim_is_listed_twice() -> None:
    claims = [(row.section, row.claim) for row in ROWS]
    assert len(set(claims)) == len(claims)


def test_corrections_lead_to_the_page_that_explains_them() -> None:
    assert "../explanation/deviations.md" in PAGE.read_text(encoding="utf-8")
    assert (ROOT / "docs" / "explanation" / "deviations.md").is_file()
