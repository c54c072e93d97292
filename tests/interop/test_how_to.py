"""The programs of the pages on publishing and listening run as they stand there, against a market of that name."""

import re
import subprocess
import sys
from pathlib import Path

from tests.runtime.worlds import SMALL, market_file, running

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
    found = [*programs("publish"), *programs("listen")]
    assert len(found) == 3
    with running(market_file(tmp_path, NODES)):
        for program in found:
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", program],
                cwd=tmp_path,
                capture_output=True,
                encoding="utf-8",
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert done.stderr == ""
            assert done.stdout
