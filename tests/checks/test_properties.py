"""The table of properties: one definition of each, on the reference page and wherever a breach is reported."""

import re

import pytest
from tests.test_repository import ROOT

from isocast.checks.facts import Report
from isocast.checks.properties import PROPERTIES, Property, explained, title

SAFETY = [f"S{number}" for number in range(1, 22)]
FAIRNESS = [f"F{number}" for number in range(1, 7)]
LIVENESS = [f"L{number}" for number in range(1, 9)]
TRADES = [f"T{number}" for number in range(1, 9)]


def test_every_property_is_there_once_with_a_title_of_its_own() -> None:
    assert list(PROPERTIES) == [*SAFETY, *FAIRNESS, *LIVENESS, *TRADES]
    assert len({each.title for each in PROPERTIES.values()}) == len(PROPERTIES)
    assert all(each.sentence and each.broken for each in PROPERTIES.values())


@pytest.mark.parametrize("each", PROPERTIES.values(), ids=lambda each: each.name)
def test_the_reference_page_says_what_the_table_says(each: Property) -> None:
    page = (ROOT / "docs/reference/properties.md").read_text(encoding="utf-8")
    row = f"| {each.name}: {each.title} | {each.sentence} | {each.broken} | ".replace("|U|", r"\|U\|")
    (found,) = re.findall(rf"^{re.escape(row)}(.*) \|$", page, re.MULTILINE)
    for module in re.findall(r"`(\w+)`", found):
        assert (ROOT / f"src/isocast/checks/{module}.py").exists(), module


def test_the_page_of_the_audit_says_how_journals_show_a_property() -> None:
    page = (ROOT / "docs/how-to/audit.md").read_text(encoding="utf-8")
    for name in ("S1", "S2", "S3", "S4", "S5", "S11", "S12", "S17", "S21"):
        each = PROPERTIES[name]
        assert f"| {each.title} | {each.name} | {each.in_journals} |" in page


def test_a_property_that_nobody_defined_cannot_be_reported() -> None:
    with pytest.raises(KeyError):
        Report()("S99", 0, "whatever")


def test_a_breach_is_explained_once() -> None:
    found = explained(["S1", "S3", "S1", "crash"])
    assert [line.partition(":")[0] for line in found] == ["S1 (agreement)", "S3 (source order)"]
    assert found[0].endswith("Broken: Customers of two receivers hold two different histories of the market.")
    assert title("S3, S4") == "source order, no forged message"
