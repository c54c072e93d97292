"""The programs of the pages on publishing and listening run as they stand there, against a market of that name."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtime.worlds import SMALL, World, market_file, running

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
PROGRAMS = [
    pytest.param(program, id=f"{page}-{number}")
    for page in ("publish", "listen")
    for number, program in enumerate(
        re.findall(r"```python\n(.*?)```", (PAGES / f"{page}.md").read_text(encoding="utf-8"), flags=re.DOTALL), 1
    )
]

pytestmark = pytest.mark.xdist_group("how-to")
"""One market, and one order."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    nodes = {
        **{name: SMALL[name] for name in ("a", "b", "c", "x", "archive")},
        "london-floor": {"role": "primary-source"},
        "desk": {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False},
    }
    with running(market_file(tmp_path_factory.mktemp("market"), nodes)) as found:
        yield found


def test_there_are_programs() -> None:
    assert len(PROGRAMS) == 3


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_runs(world: World, program: str) -> None:
    """In the order of the pages: what the first publishes, the others hear."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=world.path.parent,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout
