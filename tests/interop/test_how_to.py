"""The programs of the pages on publishing and listening run as they stand there, against a market of that name."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.runtime.worlds import BUSY, SMALL, market_file, running

from isocast.cli.main import main

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
NODES = {
    **{name: SMALL[name] for name in ("a", "b", "c", "x", "archive")},
    "london-floor": {"role": "primary-source"},
    "desk": {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False},
}


def programs(page: str) -> list[str]:
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_what_the_one_page_publishes_the_other_hears(tmp_path: Path) -> None:
    found = [*programs("publish"), *programs("listen"), *programs("opaque-messages"), *programs("instruments")]
    assert len(found) == 5
    with running(market_file(tmp_path, NODES)):
        for program in found:
            assert printed(tmp_path, "-c", program)


def printed(folder: Path, *words: str) -> str:
    """What Python prints for these arguments; a warning is an error, and so is another word on standard error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *words],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if not BUSY.search(line)] == []
    return done.stdout


def test_the_page_on_stripes_hears_what_it_publishes(tmp_path: Path) -> None:
    (program,) = programs("stripes")
    text = (PAGES / "stripes.md").read_text(encoding="utf-8")
    (rows,) = re.findall(r"printf '%s\\n' (.*) > trades.csv", text)
    (tmp_path / "trades.csv").write_text("\n".join(shlex.split(rows)) + "\n", encoding="utf-8")
    path = market_file(tmp_path, NODES, settings={"ring": {"stripes": [0, 1]}})
    with running(path):
        words = ["--source", "london-floor", "--key-prefix", "monday", str(tmp_path / "trades.csv")]
        assert main(["publish", "--config", str(path), *words]) == 0
        said = printed(tmp_path, "-c", program)
    assert "0 1 [b'IBM']" in said
    assert "1 1 [b'VOD']" in said
    assert "just before that existed ((0, " in said


def test_the_page_on_the_matching_engine_prints_what_it_says(tmp_path: Path) -> None:
    text = (PAGES / "matching-engine.md").read_text(encoding="utf-8")
    shown = re.findall(r"```text\n(.*?)```", text, flags=re.DOTALL)
    assert [printed(tmp_path, "-c", program) for program in programs("matching-engine")] == shown
