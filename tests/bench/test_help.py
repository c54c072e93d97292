"""Benches explain themselves, and refuse what they cannot do in one line."""

import ast
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCH = Path(__file__).parents[2] / "bench"
pytestmark = pytest.mark.xdist_group("bench-help")
PARTS = {"lake_engines.py", "lake_market.py", "markets.py", "scratch.py"}
"""Modules that benches import."""
SCRIPTS = sorted({path.name for path in BENCH.glob("*.py")} - PARTS)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """Run a bench in this process, as `python bench/NAME` would: what benches import is imported once."""

    def run_path(name: str, *arguments: str) -> SimpleNamespace:
        monkeypatch.syspath_prepend(str(BENCH))
        monkeypatch.setattr(sys, "argv", [str(BENCH / name), *arguments])
        for part in PARTS:
            monkeypatch.delitem(sys.modules, Path(part).stem, raising=False)
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(BENCH / name), run_name="__main__")
        for part in PARTS:
            sys.modules.pop(Path(part).stem, None)
        said = capsys.readouterr()
        return SimpleNamespace(returncode=ended.value.code, stdout=said.out, stderr=said.err)

    return run_path


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_says_what_a_bench_prints_and_how_to_run_it(name: str, run: Callable[..., SimpleNamespace]) -> None:
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
def test_an_unknown_option_is_refused_in_one_line(name: str, run: Callable[..., SimpleNamespace]) -> None:
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
    """In a process of its own, as a user runs it."""
    command = [sys.executable, str(BENCH / name), *wrong]
    refused = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=60)
    assert refused.returncode == 2
    assert "/no/such/place is no " in refused.stderr
    assert "Traceback" not in refused.stderr
