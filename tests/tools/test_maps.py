"""The maps are true: the drawings are what the code says, and pages name only what exists."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tools.house import ROOT, house
from tools.maps import CODE_PX, SENTENCE_PX, WALK, Room, drawings, layers, main, width_of

pytestmark = pytest.mark.xdist_group("house")
SOURCE = ROOT / "src" / "isocast"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROWS: list[str] = next(each for each in PROJECT["tool"]["importlinter"]["contracts"] if each["id"] == "layers")[
    "layers"
]
ROOMS = [name for row in ROWS for name in re.findall(r"\w+", row) if (SOURCE / name).is_dir()]
ASSETS = ROOT / "docs" / "assets"
PATHS = [ASSETS / "house.svg", ASSETS / "trade.svg"]
STEPS = [where for place in WALK for step in place.steps for where in step.where]
SVG = "{http://www.w3.org/2000/svg}"


@cache
def drawn() -> dict[Path, str]:
    """What each file should be; the whole package is read for it."""
    return drawings()


@cache
def built() -> list[Room]:
    """The rooms that have code, from the top layer down."""
    return [room for row in layers() for room in row if not room.is_planned]


def test_a_drawing_is_what_the_code_says_now() -> None:
    assert list(drawn()) == PATHS
    for path, text in drawn().items():
        assert path.read_text(encoding="utf-8") == text, "python -m tools.maps draws it again"


def test_checking_says_which_drawing_is_out_of_date(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--check"]) == 0
    changed = {path: text.replace("walk", "way") for path, text in drawn().items()}
    monkeypatch.setattr("tools.maps.drawings", lambda: changed)
    assert main(["--check"]) == 1
    assert capsys.readouterr().err == "docs/assets/trade.svg is out of date: python -m tools.maps\n"


def names_drawn() -> list[list[str]]:
    """The rooms of the drawing, a list for each height at which boxes begin; parts inside of rooms left out."""
    drawn: dict[float, list[str]] = {}
    room: ET.Element | None = None
    for element in ET.parse(ASSETS / "house.svg").getroot():  # noqa: S314 - our own file
        kind = element.get("class", "")
        if element.tag == f"{SVG}rect":
            room = element if "card" in kind.split() else None
        elif element.tag == f"{SVG}text" and room is not None:
            name = element.text or next((each.text for each in element), "")
            drawn.setdefault(float(room.get("y", "0")), []).append(name or "")
            room = None
    return [drawn[y] for y in sorted(drawn)]


def test_the_layers_drawn_are_those_that_the_linter_holds() -> None:
    assert names_drawn() == [re.findall(r"\w+", row) for row in ROWS]


def test_rooms_are_drawn_with_their_own_words_and_parts() -> None:
    drawn = " ".join((ASSETS / "house.svg").read_text(encoding="utf-8").split())
    modules = house(ROOT)
    for room in built():
        assert room.sentence.split()[0] in drawn
        inside = {path.parent.name for path in (SOURCE / room.name).glob("*/__init__.py")}
        assert {part.name for part in room.parts} == inside
        assert modules[room.name].docstring.replace("`", "").startswith(room.sentence)


def names_in(path: Path) -> set[str]:
    """What a module defines: functions, classes, their methods as `Class.method`, and constants."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name, body=body):
                methods = [each for each in body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
                found |= {name, *(f"{name}.{each.name}" for each in methods)}
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case _:
                pass
    return found


@pytest.mark.parametrize("where", STEPS)
def test_a_step_of_the_walk_names_what_exists(where: str) -> None:
    module, _, name = where.partition(":")
    assert (SOURCE / f"{module}.py").is_file()
    assert not name or name in names_in(SOURCE / f"{module}.py")


def spans_of(text: ET.Element) -> list[tuple[str, str]]:
    """What a line says, with the classes of each piece."""
    pieces = [(text.text or "", text.get("class", "")), *((each.text or "", each.get("class", "")) for each in text)]
    return [(words, kind) for words, kind in pieces if words]


def reach(text: ET.Element) -> float:
    """Where a line ends in the widest font."""
    sizes = {"title": 21.0, "head": 15.0, "name": 14.5, "code": CODE_PX}
    width = 0.0
    for words, kind in spans_of(text):
        size = next((px for name, px in sizes.items() if name in kind.split()), SENTENCE_PX)
        width += width_of(words, size, code="code" in kind.split()) + 12
    return float(text.get("x", "0")) + width - 12


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_text_stays_inside_its_box(path: Path) -> None:
    elements = list(ET.parse(path).getroot())  # noqa: S314 - our own file
    boxes = [
        [float(each.get(key, "0")) for key in ("x", "y", "width", "height")] for each in elements if "rect" in each.tag
    ]
    upright = [each for each in elements if each.tag == f"{SVG}text" and not each.get("text-anchor")]
    assert len(upright) > 50
    for text in upright:
        x, y = float(text.get("x", "0")), float(text.get("y", "0"))
        around = [box for box in boxes if box[0] <= x <= box[0] + box[2] and box[1] <= y <= box[1] + box[3]]
        left, top, width, height = min(around, key=lambda box: box[2] * box[3])
        assert reach(text) <= left + width, spans_of(text)
        assert top + 8 <= y <= top + height - 5, spans_of(text)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_boxes_never_overlap_unless_one_is_inside_the_other(path: Path) -> None:
    elements = [each for each in ET.parse(path).getroot() if each.tag == f"{SVG}rect"]  # noqa: S314 - our own file
    boxes = [[float(each.get(key, "0")) for key in ("x", "y", "width", "height")] for each in elements]
    sides = [(x, y, x + width, y + height) for x, y, width, height in boxes]
    for one, two in combinations(sides, 2):  # In the order of drawing: what is outside comes first.
        apart = two[0] >= one[2] or two[2] <= one[0] or two[1] >= one[3] or two[3] <= one[1]
        inside = one[0] <= two[0] and one[1] <= two[1] and two[2] <= one[2] and two[3] <= one[3]
        assert apart or inside, (one, two)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_a_drawing_suits_light_and_dark_pages_and_loads_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"@import|@font-face|url\(|href|<image|<script", text)
    assert re.findall(r"https?://\S+", text) == ['http://www.w3.org/2000/svg"']


# ---- the tables beside the drawings


@pytest.mark.parametrize("page", ["README.md", "docs/explanation/architecture.md"])
def test_the_tables_list_every_room_in_the_order_of_the_layers_and_every_part(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    tables = [re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE) for part in re.split(r"\n\n", text)]
    assert [room.name for room in built()] in tables
    parts = {part.name for room in built() if room.name == "runtime" for part in room.parts}
    assert any(set(table) == parts and len(table) == len(parts) for table in tables)


@pytest.mark.parametrize("page, asset", [("README.md", "house"), ("docs/explanation/architecture.md", "trade")])
def test_the_pages_show_the_drawings(page: str, asset: str) -> None:
    path = ROOT / page
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
    assert ASSETS / f"{asset}.svg" in [(path.parent / each).resolve() for each in shown]


# ---- what pages and docstrings name

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("src", "tests", "docs", "bench", "tools", "scenarios", "worlds", "packaging", "grafana", "requirements")
OF_A_LAKE = re.compile(r"lake/(files|_iceberg)$")
"""What `isocast lake` writes below the directory that readers call lake."""


def exists(path: str) -> bool:
    """A path as pages write it: from the root, or from src/isocast or tests; a module's without `.py`."""
    bare = path.rstrip("/")
    bases = (ROOT, SOURCE, ROOT / "tests")
    return any(any(base.glob(name)) for base in bases for name in (bare, f"{bare}.py"))


def is_module(dotted: str) -> bool:
    """A module, a room, or a name that a module has; `isocast.` in front may be left out."""
    parts = dotted.removeprefix("isocast.").split(".")
    if SOURCE.joinpath(*parts).is_dir():
        return True
    for count in range(len(parts), 0, -1):
        path = SOURCE.joinpath(*parts[:count]).with_suffix(".py")
        if path.is_file():
            return count == len(parts) or parts[count] in path.read_text(encoding="utf-8")
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_only_files_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    code = re.findall(r"`([^`\n]+)`", text)
    starts = "|".join([*ROOMS, *FOLDERS])
    paths = [
        each for each in code if re.fullmatch(rf"(?:{starts})/[\w./*-]+", each) and not re.search(r"\*\.(?!py)", each)
    ]
    paths += [each.rstrip(".") for each in re.findall(r"(?<![\w/])(?:tests|src/isocast|bench|tools)/[\w/.-]+\w", text)]
    assert [each for each in paths if not exists(each) and not OF_A_LAKE.match(each) and not exists(f"{each}*")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_only_modules_that_exist(page: Path) -> None:
    code = re.findall(r"`((?:isocast\.)?\w+(?:\.\w+)+)`", page.read_text(encoding="utf-8"))
    dotted = [each for each in code if re.match(rf"(?:isocast\.)?(?:{'|'.join(ROOMS)})\.(?!py$|md$|toml$)", each)]
    assert [each for each in dotted if not is_module(each)] == []
