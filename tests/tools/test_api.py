"""The reference of the Python package is what the docstrings say, and every public name has one."""

import inspect
import pydoc
import re
from collections.abc import Iterator
from pathlib import Path

import isocast
from tools import api


def test_the_page_is_up_to_date() -> None:
    assert api.PAGE.read_text(encoding="utf-8") == api.page(), "python -m tools.api writes it anew"


def test_every_public_name_and_every_part_of_it_says_what_it_is() -> None:
    for name in isocast.__all__:
        value = getattr(isocast, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            assert inspect.getdoc(value), name
            for member, part in vars(value).items() if inspect.isclass(value) else ():
                if not member.startswith("_") and (inspect.isfunction(part) or isinstance(part, property)):
                    assert inspect.getdoc(part), f"{name}.{member}"


def test_every_public_name_is_tested_by_name() -> None:
    tests = Path(__file__).parents[1]
    text = "".join([path.read_text(encoding="utf-8") for path in (tests / "runtime").rglob("test_*.py")])
    assert [name for name in isocast.__all__ if f"isocast.{name}" not in text and name != "__version__"] == []


def members() -> Iterator[tuple[str, str]]:
    """Every public member of every public class of the package."""
    for name in isocast.__all__:
        value = getattr(isocast, name)
        for member, part in vars(value).items() if inspect.isclass(value) else ():
            if not member.startswith("_") and (inspect.isfunction(part) or isinstance(part, property)):
                yield name, member


def test_every_public_member_is_on_the_page_and_says_what_it_is_in_its_first_line() -> None:
    page = api.PAGE.read_text(encoding="utf-8")
    for name, member in members():
        text = inspect.getdoc(getattr(getattr(isocast, name), member)) or ""
        assert text.partition("\n")[0].endswith((".", ":", ";", ",")) or len(text.splitlines()) > 1, f"{name}.{member}"
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert f"### {name}.{member}\n" in section or f"- `{member}`:" in section, f"{name}.{member}"


def test_every_public_member_is_used_by_a_test() -> None:
    tests = Path(__file__).parents[1]
    text = "".join([path.read_text(encoding="utf-8") for path in tests.rglob("test_*.py") if path != Path(__file__)])
    assert [f"{name}.{member}" for name, member in members() if not re.search(rf"\.{member}\b", text)] == []


def test_help_names_every_public_name_and_shows_how_to_begin() -> None:
    text = pydoc.plain(pydoc.render_doc(isocast))
    assert "with isocast.connect() as market:" in text.partition("PACKAGE CONTENTS")[0]
    assert [name for name in isocast.__all__ if name not in text and name != "__version__"] == []


def test_both_faces_have_the_same_methods_with_the_same_arguments() -> None:
    for one, other in (("Connection", "AsyncConnection"), ("Listening", "AsyncListening"), ("LiveTape", "AsyncTape")):
        plain, twin = getattr(isocast, one), getattr(isocast, other)
        for name, method in vars(plain).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                assert (
                    str(inspect.signature(method)).partition(" -> ")[0]
                    == str(inspect.signature(getattr(twin, name))).partition(" -> ")[0]
                ), name
