"""Which packages the modules of Isocast need to load, where less is installed than for these tests."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOAD_ALL = """
import importlib, importlib.metadata, json, pkgutil, re, sys

present = set(json.loads(sys.argv[1]))
normal = lambda name: re.sub(r"[-_.]+", "-", name).lower()
packages = importlib.metadata.packages_distributions()
absent = {name for name, parts in packages.items() if present.isdisjoint(map(normal, parts))}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import isocast

missed, loaded = {}, 0
for module in pkgutil.walk_packages(isocast.__path__, "isocast."):
    if module.name.endswith((".__main__", ".migrations.env")):  # Programs, by Python and by alembic.
        continue
    try:
        importlib.import_module(module.name)
        loaded += 1
    except ModuleNotFoundError as error:
        missed.setdefault(error.name.partition(".")[0], []).append(module.name)
print(json.dumps([loaded, missed]))
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def load_all(present: set[str]) -> dict[str, list[str]]:
    """Missing packages, and the modules that cannot be loaded without them."""
    command = [sys.executable, "-c", LOAD_ALL, json.dumps(sorted(present))]
    said = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    loaded, missed = json.loads(said.stdout)
    assert loaded > 200
    return dict(missed)


def core() -> set[str]:
    """The distributions that come with Isocast without extras."""
    found, todo = set[str](), ["isocast"]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            with suppress(PackageNotFoundError):  # For another Python, or another system.
                needed = [text for text in requires(name) or [] if "extra ==" not in text]
                todo += [normal(re.split(r"[^\w.-]", text, maxsplit=1)[0]) for text in needed]
    return found


def test_make_demo_installs_what_every_module_needs_but_those_of_two_table_formats() -> None:
    lock = (ROOT / "requirements" / "run.txt").read_text(encoding="utf-8")
    locked = {normal(name) for name in re.findall(r"^([\w.-]+)==", lock, flags=re.MULTILINE)}
    assert load_all({"isocast", *locked}) == {
        "deltalake": ["isocast.lake.table_format_delta"],
        "pyiceberg": ["isocast.lake.table_format_iceberg"],
    }


def test_without_extras_only_lake_accounts_box_office_and_browsers_are_missing() -> None:
    missed = load_all(core())
    assert set(missed) == {"alembic", "pyarrow", "pyspark", "sqlalchemy", "websockets"}
    rooms = r"isocast\.(lake\.|runtime\.(accounts|box_office)\.|runtime\.disk\.database$|runtime\.edge\.web_gateway$)"
    others = {name for names in missed.values() for name in names if not re.match(rooms, name)}
    assert others == {"isocast.trials.demo.books", "isocast.trials.demo.trading_summary"}
