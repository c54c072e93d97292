"""What the repository promises about itself, beyond what ruff, mypy and import-linter can see."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import HEAVY, REAL_TIME, rank

import isocast

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS: dict[str, dict[str, Any]] = {entry["id"]: entry for entry in PROJECT["tool"]["importlinter"]["contracts"]}
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))

# What each lock is compiled from: the core, and these extras.
EXTRAS = {
    "dev": ["build", "dev"],
    "docs": ["build", "docs"],
    "fuzz": ["build", "fuzz"],
    "run": ["build", "accounts", "spark", "websocket", "zstd"],
}


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def pins(lock: Path) -> list[str]:
    """Each pinned requirement with its hashes, as one line."""
    text = lock.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]


def built_layers_from(top: str) -> set[str]:
    """The packages of the layer `top` and of those below it that exist."""
    rows: list[str] = CONTRACTS["layers"]["layers"]
    names = {name.strip(" ()") for row in rows[rows.index(top) :] for name in row.split("|")}
    return {f"isocast.{name}" for name in names if (ROOT / "src" / "isocast" / name).is_dir()}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_pins_exact_versions_by_hash_and_names_no_server(lock: Path) -> None:
    lines = pins(lock)
    assert lines
    for line in lines:
        assert re.match(r"[a-z0-9-]+(\[[a-z,]+\])?==\S+ .*--hash=sha256:", line), line
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text


@pytest.mark.parametrize("stem", EXTRAS)
def test_a_lock_holds_every_requirement_that_it_stands_for(stem: str) -> None:
    project = PROJECT["project"]
    wanted = project["dependencies"] + [
        requirement for extra in EXTRAS[stem] for requirement in project["optional-dependencies"][extra]
    ]
    # An extra may name another of this project's: `isocast[spark]`.
    own = re.compile(rf"{project['name']}\[([\w-]+)\]")
    named = [found[1] for requirement in wanted if (found := own.fullmatch(requirement))]
    wanted = [requirement for requirement in wanted if not own.fullmatch(requirement)]
    wanted += [requirement for extra in named for requirement in project["optional-dependencies"][extra]]
    locked = {name_of(line) for line in pins(ROOT / "requirements" / f"{stem}.txt")}
    assert {name_of(requirement) for requirement in wanted} <= locked


def test_locks_agree_on_every_version_they_share() -> None:
    def versions(lock: Path) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for line in pins(lock):
            found.setdefault(name_of(line), set()).add(line.split("--hash")[0].strip())
        return found

    dev = versions(ROOT / "requirements" / "dev.txt")
    for lock in LOCKS:
        for name, pinned in versions(lock).items():
            assert dev.get(name, pinned) == pinned, f"{lock.name}: {name}"


def test_every_package_from_nodes_down_is_held_pure() -> None:
    assert built_layers_from("nodes") == set(CONTRACTS["pure"]["source_modules"])


def test_the_simulator_is_kept_from_the_runtime() -> None:
    if (ROOT / "src" / "isocast" / "runtime").is_dir():
        assert "isocast.runtime" in CONTRACTS["virtual"]["forbidden_modules"]


def test_a_built_package_is_no_optional_layer() -> None:
    for row in CONTRACTS["layers"]["layers"]:
        for name in re.findall(r"\((\w+)\)", row):
            assert not (ROOT / "src" / "isocast" / name).is_dir(), f"drop the parentheses of {name}"


def test_every_ignored_rule_gives_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    rules = re.findall(r'^  "[A-Z]+[0-9]*",.*$', text, flags=re.MULTILINE)
    assert len(rules) >= len(PROJECT["tool"]["ruff"]["lint"]["ignore"])
    for rule in rules:
        assert re.search(r"# \S+", rule), rule


def test_package_and_project_name_the_same_version() -> None:
    assert isocast.__version__ == PROJECT["project"]["version"]


def test_temporary_directories_come_from_the_one_place_that_removes_them_after_any_end() -> None:
    makers = r"\bmkdtemp\(|\bTemporaryDirectory\("
    package = ROOT / "src" / "isocast"
    found = [path for path in sorted(package.rglob("*.py")) if re.search(makers, path.read_text("utf-8"))]
    assert found == [package / "runtime" / "disk" / "scratch.py"]


def test_a_negative_acknowledgement_has_one_name() -> None:
    """NACK, in code, docs, metrics and dashboards alike."""
    places = [ROOT / "README.md", *[ROOT / name for name in ("src", "docs", "grafana", "tools", "packaging")]]
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*")) if file.is_file()]
    texts = [file for file in files if file.suffix in {".json", ".lua", ".md", ".py", ".svg", ".toml", ".yml"}]
    assert len(texts) > 400
    assert [file for file in texts if re.search(r"(?i)(?<![a-z])naks?(?![a-z])", file.read_text("utf-8"))] == []


@pytest.mark.parametrize("path", sorted((ROOT / "src" / "isocast" / "cli").glob("*.py")), ids=lambda path: path.stem)
def test_a_command_leaves_signals_and_their_deadlines_to_the_one_place_for_them(path: Path) -> None:
    if path.stem == "demo_view":  # Run by itself it draws the picture of the README, and is no command.
        return
    found = re.findall(r"asyncio\.run\(|add_signal_handler|signal\.signal\(", path.read_text(encoding="utf-8"))
    assert not found, "shutdown.run and shutdown.stopping (isocast/runtime/operate/shutdown.py) end a command in time"


def test_the_order_of_tests_names_files_that_exist() -> None:
    for name in (*REAL_TIME, *HEAVY):
        assert (ROOT / name).is_dir() if name.endswith("/") else (ROOT / name).is_file(), name


def test_what_waits_is_in_front_of_what_computes_and_the_longest_are_at_the_ends() -> None:
    names = ["tests/lake/test_x.py::test", "tests/cli/test_sim.py::test", "tests/wire/test_x.py::test"]
    names += ["tests/runtime/net/test_x.py::test", "tests/cli/test_up.py::test", "tests/interop/test_x.py::test"]
    assert sorted(names, key=rank) == names[::-1]
