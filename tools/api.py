"""The reference of the Python package from its docstrings: `python -m tools.api` writes docs/reference/python.md."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import isocast

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "python.md"
_HEAD = """# Python

Made from the docstrings by `python -m tools.api`; `help(isocast)` says the same.
[Ten lines of Python](../tutorial/ten-lines-of-python.md) is the place to begin.
"""


def page() -> str:
    """The whole page."""
    sections = [section(name) for name in isocast.__all__ if name != "__version__"]
    return "\n".join([_HEAD, *sections])


def section(name: str) -> str:
    """A public name of the package: what it is, and what it has."""
    value = getattr(isocast, name)
    if inspect.isclass(value):
        lines = [f"## {name}\n", *_text(value.__doc__), ""]
        rows = [f"- `{member}`" + (f": {_joined(text)}" if text else "") for member, text in _attributes(value)]
        lines += [*rows, ""] if rows else []
        for member, method in _methods(value):
            lines += [
                f"### {name}.{member}\n",
                f"```text\n{_signature(member, method)}\n```\n",
                *_text(method.__doc__),
                "",
            ]
        return "\n".join(lines)
    if inspect.isfunction(value):
        return "\n".join([f"## {name}\n", f"```text\n{_signature(name, value)}\n```\n", *_text(value.__doc__), ""])
    names = ", ".join([f"`{field}`" for field in value.names])
    return f"## {name}\n\nThe record of an event, as a dtype of numpy: {names}.\n"


def _text(docstring: str | None) -> list[str]:
    """A docstring as Markdown: indented lines are code there as well."""
    return inspect.cleandoc(docstring or "").splitlines()


def _joined(docstring: str) -> str:
    return " ".join(inspect.cleandoc(docstring).split())


def _signature(name: str, function: object) -> str:
    text = f"{name}{inspect.signature(function)}".replace("''", '""').replace("'", "")  # type: ignore[arg-type]
    if len(text) <= 100:  # noqa: PLR2004 - a line of the page
        return text
    inside, _, result = text[len(name) + 1 :].rpartition(")")
    arguments = re.split(r", (?![^\[(]*[\])])", inside)
    return "\n".join([f"{name}(", *[f"    {argument}," for argument in arguments], f"){result}"])


def _methods(value: type) -> Iterator[tuple[str, object]]:
    for name, member in vars(value).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            yield name, member


def _attributes(value: type) -> Iterator[tuple[str, str]]:
    """Properties, members of an enumeration and fields with the text below them."""
    for name, member in vars(value).items():
        if isinstance(member, property):
            yield name, member.__doc__ or ""
    tree = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    assert isinstance(tree, ast.ClassDef)  # noqa: S101 - the source of a class
    for field, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        target: ast.expr | None = field.target if isinstance(field, ast.AnnAssign) else None
        if isinstance(field, ast.Assign) and issubclass(value, Enum):
            target = field.targets[0]
        if isinstance(target, ast.Name) and not target.id.startswith("_"):
            has_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            yield target.id, str(below.value.value) if has_text else ""  # type: ignore[union-attr]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
