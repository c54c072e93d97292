"""The wheel in a fresh environment: what is in it, what it weighs, and the ten lines of the tutorial."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial" / "ten-lines-of-python.md"
UV = Path(sys.prefix) / "bin" / "uv"
MB = 10**6
DRIVER = """
import json, signal, subprocess, sys
commands, program = json.loads(sys.argv[1])
up = subprocess.Popen(["sh", "-c", commands], stdout=subprocess.PIPE, text=True)
for line in up.stdout:
    if line.startswith("{") and json.loads(line)["event"] == "all-ready":
        break
try:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=120)
finally:
    up.send_signal(signal.SIGINT)
    up.communicate(timeout=120)
print(json.dumps([done.returncode, done.stdout, done.stderr, up.returncode]))
"""
ALONE = ("unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""A network of its own, where the machine allows it: no other market is in the way."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    said = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, encoding="utf-8", check=True
    )
    return folder / said.stdout.split()[-1]


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new environment with the wheel and what it needs, and nothing else."""
    place = tmp_path_factory.mktemp("fresh") / "environment"
    python = place / "bin" / "python"
    if UV.exists():
        steps = [
            [UV, "venv", "-q", "--python", sys.executable, place],
            [UV, "pip", "install", "-q", "--python", python],
        ]
    else:
        steps = [[sys.executable, "-m", "venv", place], [python, "-m", "pip", "install", "-q", "--no-compile"]]
    steps[1].append(wheel)
    for step in steps:
        done = subprocess.run([str(word) for word in step], capture_output=True, encoding="utf-8", check=False)
        if done.returncode:
            pytest.skip(f"no fresh environment here: {done.stderr.strip().splitlines()[-1]}")
    yield place
    shutil.rmtree(place)


def test_the_wheel_has_types_and_every_file_that_a_help_names(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert "isocast/py.typed" in names
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "isocast" / "cli").glob("*.py")]
    named = {name for text in sources for name in re.findall(r"(?:scenarios|worlds)/[\w/-]+\.toml", text)}
    assert named
    assert {f"isocast/cli/shipped/{name}" for name in named} - names == set()
    assert [name for name in names if name.split("/")[0] in {"tests", "docs", "bench", "tools"}] == []


def test_the_wheel_needs_none_of_the_extras(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))).decode()
    needed = re.findall(r"^Requires-Dist: ([\w-]+)(?!.*extra ==)", metadata, re.MULTILINE)
    assert sorted(needed) == ["cryptography", "cyclopts", "numpy", "rich", "structlog"]


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


@pytest.mark.long
def test_an_installation_is_small(fresh: Path) -> None:
    """All files below site-packages but bytecode and pip itself; numpy, with its OpenBLAS, is two thirds of them."""
    (packages,) = fresh.glob("lib/python3*/site-packages")
    sizes = {path.name: size_of(path) for path in packages.iterdir() if path.is_dir()}
    theirs = sum(size for name, size in sizes.items() if re.match(r"pip|setuptools|pkg_resources|_distutils", name))
    numpy = sizes["numpy"] + sizes.get("numpy.libs", 0)
    whole = sum(sizes.values()) - theirs
    print(f"installed: {whole / MB:.1f} MB, of which numpy {numpy / MB:.1f} MB")  # noqa: T201
    assert whole - numpy < 35 * MB
    assert whole < 100 * MB


@pytest.mark.long
def test_without_an_extra_one_line_says_which_to_install(fresh: Path, tmp_path: Path) -> None:
    (tmp_path / "a.zst").write_bytes(bytes.fromhex("28b52ffd2000010000"))
    for words, extra in (
        ("lake prepare", "spark"),
        ("feed show a.zst", "zstd"),
        ("plan world worlds/planet.toml --png a.png", "plots"),
    ):
        said = subprocess.run(
            [fresh / "bin" / "isocast", *words.split()],
            cwd=tmp_path,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert said.returncode in (1, 2, 3), words
        assert f"pip install 'isocast[{extra}]'" in said.stderr, words
        assert said.stderr.count("\n") == 1, said.stderr


@pytest.mark.long
def test_a_scenario_that_the_help_names_runs_in_any_folder(fresh: Path, tmp_path: Path) -> None:
    command = [str(fresh / "bin" / "isocast"), "sim", "run", "scenarios/quiet.toml", "--json"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=True)
    assert json.loads(said.stdout)["violations"] == []


@pytest.mark.long
def test_the_examples_are_strictly_typed_against_the_installed_package(fresh: Path, tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = true\n[mypy-pandas]\nignore_missing_imports = true\n", encoding="utf-8"
    )
    examples = [str(path) for path in sorted((ROOT / "examples").glob("*.py"))]
    command = [sys.executable, "-m", "mypy", "--python-executable", str(fresh / "bin" / "python"), *examples]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert (said.returncode, said.stdout) == (0, f"Success: no issues found in {len(examples)} source files\n")


@pytest.mark.long
def test_the_ten_lines_of_the_tutorial_from_the_wheel(fresh: Path, tmp_path: Path) -> None:
    page = TUTORIAL.read_text(encoding="utf-8")
    commands = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)[0].split("\n")
    program = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)[0]
    expected = re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL)[0]
    isocast = shlex.quote(str(fresh / "bin" / "isocast"))
    *before, up = [line.replace("isocast", isocast, 1) for line in commands if line]
    whole = json.dumps([" && ".join([*before, f"exec {up} --json"]), program])
    alone = () if subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode else ALONE
    done = subprocess.run(
        [*alone, fresh / "bin" / "python", "-c", DRIVER, whole],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=600,
    )
    assert json.loads(done.stdout) == [0, expected, "", 0]
