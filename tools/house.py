#!/usr/bin/env python3
"""Measures the house: files, lines, importers and import cycles of every room below src/isocast.

    tools/house.py [--json] [--cycles] [DIRECTORY]

DIRECTORY is a checkout; by default the one that this file is in. Whoever imports a module counts as its importer, be it
at the top, for the type checker alone, in a function, or by the text "isocast.module:name" that a command is loaded by.
A cycle is made of the first two kinds: what a function imports when it is called is loaded late on purpose.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "isocast"


@dataclass(frozen=True, slots=True)
class Module:
    """One file of the package, as its text shows it."""

    name: str
    """Without the package: `ring.receiver`; a room's `__init__` has the room's name, the package's own none."""
    path: Path
    lines: int
    docstring: str
    imports: frozenset[str]
    """Other modules of the package that it imports at its top, or for the type checker alone."""
    late: frozenset[str]
    """Those that it loads when a function is called."""
    is_init: bool
    only_reexports: bool
    """It has imports and `__all__`, and nothing of its own."""

    @property
    def room(self) -> str:
        """The first part of its name."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Room:
    """What a row of the table says."""

    room: str
    files: int
    lines: int
    one_importer: int
    """Modules that exactly one other module imports."""
    largest: str
    largest_lines: int
    cycles: int


@cache
def house(root: Path = ROOT) -> Mapping[str, Module]:
    """Every module of the package by its name, as the files were when it was first asked."""
    base = root / "src" / PACKAGE
    paths = {_name(path.relative_to(base)): path for path in sorted(base.rglob("*.py"))}
    return {name: _module(name, path, frozenset(paths)) for name, path in paths.items()}


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _module(name: str, path: Path, known: frozenset[str]) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    is_init = path.name == "__init__.py"
    every = {found for node in ast.walk(tree) for found in _imported(node, known)} - {name}
    imports = {found for node in _at_the_top(tree.body) for found in _imported(node, known)} - {name}
    return Module(
        name,
        path,
        len(text.splitlines()),
        ast.get_docstring(tree) or "",
        frozenset(imports),
        frozenset(every - imports),
        is_init,
        _reexports(tree.body),
    )


def _at_the_top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run as a module is loaded, and those behind `if TYPE_CHECKING`."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from _at_the_top([*statement.body, *statement.orelse])
        elif isinstance(statement, ast.Try):
            yield from _at_the_top([*statement.body, *(each for way in statement.handlers for each in way.body)])


def _imported(node: ast.AST, known: frozenset[str]) -> Iterator[str]:
    match node:
        case ast.ImportFrom(module=str(module), names=names, level=0):
            for alias in names:
                inner = _known(f"{module}.{alias.name}", known)
                outer = _known(module, known)
                if found := inner or outer:
                    yield found
        case ast.Import(names=names):
            yield from (found for alias in names if (found := _known(alias.name, known)))
        case ast.Constant(value=str(text)) if found := _known(text.partition(":")[0], known):
            yield found


def _known(dotted: str, known: frozenset[str]) -> str | None:
    """The module of that name; the package's own `__init__` loads lazily, and is no dependency."""
    name = dotted.removeprefix(f"{PACKAGE}.")
    return name if name != dotted and name in known else None


def _reexports(body: list[ast.stmt]) -> bool:
    own = [statement for statement in body if not isinstance(statement, (ast.Import, ast.ImportFrom))]
    own = [statement for statement in own if not _is_docstring(statement) and not _is_all(statement)]
    return len(own) == 0 and any(isinstance(statement, (ast.Import, ast.ImportFrom)) for statement in body)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_all(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == "__all__" for target in statement.targets
    )


# ---- what follows from the imports


def importers(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Who imports each module."""
    found: dict[str, set[str]] = {name: set() for name in modules}
    for module in modules.values():
        for name in module.imports | module.late:
            found[name].add(module.name)
    return found


def cycles(modules: Mapping[str, Module]) -> list[tuple[str, ...]]:
    """Groups of modules that all import each other, directly or through others of the group: each sorted, and all."""
    after = _visited_after(modules)
    back: dict[str, set[str]] = {name: set() for name in modules}
    for module in modules.values():
        for name in module.imports:
            back[name].add(module.name)
    groups: list[tuple[str, ...]] = []
    taken: set[str] = set()
    for start in reversed(after):  # Kosaraju: against the imports, from what was finished last.
        group, waiting = [], [start]
        while waiting:
            name = waiting.pop()
            if name not in taken:
                taken.add(name)
                group.append(name)
                waiting.extend(sorted(back[name] - taken))
        if len(group) > 1:
            groups.append(tuple(sorted(group)))
    return sorted(groups)


def _visited_after(modules: Mapping[str, Module]) -> list[str]:
    """Modules in the order in which a walk along the imports leaves them."""
    left: list[str] = []
    seen: set[str] = set()
    for start in sorted(modules):
        stack = [] if start in seen else [(start, iter(sorted(modules[start].imports)))]
        seen.add(start)
        while stack:
            name, rest = stack[-1]
            following = next((each for each in rest if each not in seen), None)
            if following is None:
                left.append(name)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(sorted(modules[following].imports))))
    return left


def rooms(modules: Mapping[str, Module]) -> list[Room]:
    """A row for each room, and one for all of it at the end; the package's own two files are no room."""
    who = importers(modules)
    round_trips = cycles(modules)
    by_room: dict[str, list[Module]] = {}
    for module in modules.values():
        if module.room not in {"", "__main__"}:
            by_room.setdefault(module.room, []).append(module)
    everything = [module for inside in by_room.values() for module in inside]
    return [_row(room, inside, who, round_trips) for room, inside in [*sorted(by_room.items()), ("all", everything)]]


def _row(room: str, inside: list[Module], who: Mapping[str, set[str]], round_trips: list[tuple[str, ...]]) -> Room:
    largest = max(inside, key=lambda module: (module.lines, module.name))
    names = {module.name for module in inside}
    return Room(
        room,
        len(inside),
        sum(module.lines for module in inside),
        sum(1 for module in inside if not module.is_init and len(who[module.name]) == 1),
        largest.name,
        largest.lines,
        sum(1 for group in round_trips if names & set(group)),
    )


# ---- the command


def _table(rows: list[Room]) -> str:
    cells: list[tuple[str, ...]] = [("room", "files", "lines", "one importer", "largest module", "lines", "cycles")]
    for row in rows:
        figures = (row.files, row.lines, row.one_importer, row.largest, row.largest_lines, row.cycles)
        cells.append((row.room, *(f"{each:,}" if isinstance(each, int) else each for each in figures)))
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    left = {0, 4}
    lines = [
        "  ".join(cell.ljust(width) if at in left else cell.rjust(width) for at, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in cells)
    ]
    return "\n".join(line.rstrip() for line in lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, default=ROOT, metavar="DIRECTORY", help="a checkout")
    parser.add_argument("--json", action="store_true", help="print one object, for programs")
    parser.add_argument("--cycles", action="store_true", help="name the modules of each import cycle as well")
    chosen = parser.parse_args(arguments)
    modules = house(chosen.directory)
    found = cycles(modules)
    if chosen.json:
        sys.stdout.write(json.dumps({"rooms": [asdict(row) for row in rooms(modules)], "cycles": found}) + "\n")
        return 0
    sys.stdout.write(_table(rooms(modules)) + "\n")
    for group in found if chosen.cycles else ():
        sys.stdout.write(f"\ncycle of {len(group)}: {', '.join(group)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
