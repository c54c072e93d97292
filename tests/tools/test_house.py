"""The package keeps the shape that its maps promise, and the tool that measures it measures right."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from tools.house import ROOT, Module, cycles, house, importers, main, rooms

pytestmark = pytest.mark.xdist_group("house")
SOURCE = ROOT / "src" / "isocast"
ROOMS = [".".join(path.parent.relative_to(SOURCE).parts) for path in sorted(SOURCE.rglob("*/__init__.py"))]

KNOWN_CYCLES: list[tuple[str, ...]] = []
"""What is still to be untied. Take off what is gone; add nothing."""


SHARED_NAMES = frozenset({
    "Balance", "Block", "Change", "Connection", "Deliver", "Fault", "Fill", "Floor", "Holding", "Kind", "Ledger",
    "Login", "Place", "Refused", "Replaced", "Reveal", "Schedule", "Scope", "Sealed", "Session", "Side", "Standing",
    "Who",
})  # fmt: skip
"""Classes of two rooms that still share a name. Take off what is gone; add nothing."""


def test_a_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = {}
    for module in house(ROOT).values():
        for node in ast.parse(module.path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module.name)
    shared = {name: modules for name, modules in places.items() if len(modules) > 1}
    assert {name: modules for name, modules in shared.items() if name not in SHARED_NAMES} == {}


def test_there_are_no_import_cycles_but_those_that_are_still_to_be_untied() -> None:
    found = cycles(house(ROOT))
    assert [group for group in found if group not in KNOWN_CYCLES] == []
    assert [group for group in KNOWN_CYCLES if group not in found] == [], "gone: take it off the list"


def test_no_module_only_reexports() -> None:
    """A room's `__init__` may: it says what the room offers."""
    assert [each.name for each in house(ROOT).values() if each.only_reexports and not each.is_init] == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_owns_and_what_it_refuses(room: str) -> None:
    """In a line that fits into the drawing of the house, and a sentence or more."""
    first, blank, *rest = house(ROOT)[room].docstring.split("\n")
    assert first.endswith(".")
    assert blank == ""
    assert re.search(r"\w\.", " ".join(rest))


# ---- the tool itself


def tree(root: Path, **files: str) -> Mapping[str, Module]:
    """A checkout whose package has these files: `a__b` is a/b.py."""
    package = root / "src" / "isocast"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    for name, text in files.items():
        path = package.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text, encoding="utf-8")
    return house(root)


@pytest.mark.parametrize(
    "text",
    [
        "from isocast.room.two import name",
        "from isocast.room import two",
        "import isocast.room.two",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from isocast.room.two import name",
        "def late():\n    from isocast.room.two import name",
        'COMMAND = "isocast.room.two:name"',
    ],
    ids=["from", "module", "import", "types", "late", "text"],
)
def test_an_importer_counts_wherever_its_import_stands(
    tmp_path: Path, text: str, request: pytest.FixtureRequest
) -> None:
    """It closes a cycle unless it is loaded late, when a function is called."""
    modules = tree(tmp_path, room__one=text, room__two="from isocast.room.one import x")
    assert importers(modules)["room.two"] == {"room.one"}
    late = request.node.callspec.id in {"late", "text"}
    assert cycles(modules) == ([] if late else [("room.one", "room.two")])


def test_a_cycle_is_found_once_with_all_its_modules(tmp_path: Path) -> None:
    modules = tree(
        tmp_path,
        a__one="from isocast.a import two",
        a__two="from isocast.b import three",
        b__three="from isocast.a.one import x",
        b__outside="from isocast.a import one",
        b__below="x = 1",
    )
    assert cycles(modules) == [("a.one", "a.two", "b.three")]
    assert [(row.room, row.cycles) for row in rooms(modules)] == [("a", 1), ("b", 1), ("all", 1)]


def test_a_module_with_anything_of_its_own_is_more_than_its_imports(tmp_path: Path) -> None:
    modules = tree(
        tmp_path,
        a__names='"""Names."""\nfrom re import match\n__all__ = ["match"]\n',
        a__own="from re import match\nLIMIT = 5\n",
    )
    assert {name for name, module in modules.items() if module.only_reexports} == {"a.names"}


def test_the_table_adds_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree(tmp_path, a__one="from isocast.b.two import x\n", b__two="x = 1\ny = 2\n")
    assert main([str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    by_room = {row.pop("room"): row for row in found["rooms"]}
    assert by_room["b"] == {
        "files": 2,
        "lines": 2,
        "one_importer": 1,
        "largest": "b.two",
        "largest_lines": 2,
        "cycles": 0,
    }
    assert {key: by_room["all"][key] for key in ("files", "lines", "one_importer")} == {
        "files": 4,
        "lines": 3,
        "one_importer": 1,
    }
    assert main([str(tmp_path)]) == 0
    assert re.search(r"^b +2 +2 +1  b\.two +2 +0$", capsys.readouterr().out, re.MULTILINE)
