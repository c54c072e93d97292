"""Texts count in good English: "1 event", never "1 events"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from isocast.terms.quantities import counted

PACKAGE = Path(__file__).parents[2] / "src" / "isocast"
SPEAKERS = ("cli", "runtime/client", "runtime/edge", "trials/demo")
"""Those that sum up for people; plans of whole worlds count in thousands."""
OTHERS = ("config", "plan_coverage", "plan_world")
SEVERAL = re.compile(
    r" (?:ITCH |lost )?(?:bars|blocks|clients|customers|events|faults|gaps|messages|nodes|packets|receivers|requests|"
    r"rings|rows|runs|sites|symbols|times|tokens|violations)\b(?!/| a second)"
)
SHARE = re.compile(r"\b(?:of|of all|at most|at least|fewer than|more than|larger than|from \d+ to|up to|all) $")
"""Before a total, or a bound, of which there are several."""


def bare_plurals(text: str) -> Iterator[tuple[int, str]]:
    """Where an f-string has a number of its own before a plural: `counted` knows when there is one."""
    for node in ast.walk(ast.parse(text)):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for place, part in enumerate(parts[:-1]):
            before, after = (parts[place - 1] if place else None), parts[place + 1]
            if not isinstance(part, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            is_share = isinstance(before, ast.Constant) and SHARE.search(str(before.value))
            is_bound = isinstance(part.value, ast.Name) and part.value.id.isupper()
            if SEVERAL.match(str(after.value)) and not is_share and not is_bound:
                yield part.lineno, ast.unparse(part.value) + str(after.value)


@pytest.mark.parametrize(
    "text, found",
    [
        ('f"{count} events came"', 1),
        ('f"{figure(count)} ITCH messages"', 1),
        ('f"{done} of {total} events"', 0),
        ("f\"{counted(count, 'event')} came\"", 0),
        ('f"{rate:,.0f} events/s, {rate} events a second, more than {MOST:,} events"', 0),
    ],
)
def test_a_bare_plural_is_found(text: str, found: int) -> None:
    assert len(list(bare_plurals(text))) == found


@pytest.mark.parametrize("room", SPEAKERS)
def test_what_is_counted_may_be_one(room: str) -> None:
    paths = [path for path in sorted((PACKAGE / room).rglob("*.py")) if path.stem not in OTHERS]
    assert [f"{path}:{at}: {what}" for path in paths for at, what in bare_plurals(path.read_text("utf-8"))] == []


def test_one_is_one_and_none_and_two_are_several() -> None:
    texts = [counted(number, "batch", "batches") for number in (0, 1, 2)]
    assert texts == ["0 batches", "1 batch", "2 batches"]
    assert counted(1_234, "event") == "1,234 events"
