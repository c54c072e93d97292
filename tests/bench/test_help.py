"""Benches explain themselves, and refuse what they cannot do in one line."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
PARTS = {"lake_engines.py", "lake_market.py", "markets.py", "scratch.py"}
"""Modules that benches import."""
SCRIPTS = sorted({path.name for path in BENCH.glob("*.py")} - PARTS)


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / name), *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=60)


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_says_what_a_bench_prints_and_how_to_run_it(name: str) -> None:
    """And measures nothing: the first line of the file, and a command to copy."""
    helped = run(name, "--help")
    assert (helped.returncode, helped.stderr) == (0, "")
    first = ast.get_docstring(ast.parse((BENCH / name).read_text(encoding="utf-8")), clean=False)
    assert first is not None
    assert first.partition("\n")[0] in helped.stdout
    assert f"    python bench/{name} " in helped.stdout
    assert "--json" in helped.stdout


def test_a_bench_is_one_that_can_be_run() -> None:
    """`make bench` runs all but the parts, so that the two lists must be one."""
    makefile = (BENCH.parent / "Makefile").read_text(encoding="utf-8")
    (parts,) = [line for line in makefile.splitlines() if line.startswith("BENCH_PARTS")]
    assert {Path(part).name for part in parts.partition(":=")[2].split()} == PARTS


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_unknown_option_is_refused_in_one_line(name: str) -> None:
    refused = run(name, "--no-such-option")
    assert refused.returncode == 2
    assert refused.stderr.endswith("unrecognized arguments: --no-such-option\n")


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("store.py", ["/no/such/place"]),
        ("journal.py", ["--directory", "/no/such/place"]),
        ("itch.py", ["/no/such/place"]),
    ],
)
def test_bad_input_is_no_traceback(name: str, wrong: list[str]) -> None:
    refused = run(name, *wrong)
    assert refused.returncode == 2
    assert "/no/such/place is no " in refused.stderr
    assert "Traceback" not in refused.stderr
