"""The programs of the tutorial and those in examples/ run as they stand, one after the other, against one market."""

import json
import re
from pathlib import Path

from tests.interop.test_how_to import NODES, printed
from tests.runtime.worlds import market_file, running

ROOT = Path(__file__).parents[2]


def notebook(path: Path) -> tuple[str, str]:
    """The code of a notebook's cells, and what they printed when it was kept."""
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    printed = ["".join(output["text"]) for cell in cells for output in cell["outputs"]]
    return "\n".join("".join(cell["source"]) for cell in cells), "".join(printed)


def test_the_programs_of_the_tutorial_say_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorial" / "ten-lines-of-python.md").read_text(encoding="utf-8")
    ten, tables, mistakes, tape = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    first, wrong = re.findall(r"```text\n(.*?)```", text, flags=re.DOTALL)
    assert len(ten.strip().splitlines()) <= 10
    with running(market_file(tmp_path, NODES)):
        assert printed(tmp_path, "-c", ten) == first
        assert "<Published 3 events in 1 message at london-floor>" in printed(tmp_path, "-c", tables)
        assert printed(tmp_path, "-c", mistakes) == wrong
        assert printed(tmp_path, "-c", tape) == "72.6000 700\n72.5000\n"


def test_the_examples_run(tmp_path: Path) -> None:
    programs = {path.stem: str(path) for path in (ROOT / "examples").glob("*.py")}
    del programs["trader"]  # It needs a gateway: tests/runtime/client/test_trader.py runs it.
    del programs["exchange"]  # It needs a delivery: tests/runtime/exchange and test_exchange.py run it.
    assert set(programs) == {"asynchronous", "customer", "floor", "quiz_buzzer", "tape"}
    with running(market_file(tmp_path, NODES)):
        assert printed(tmp_path, programs["floor"]) == "3 events are safe, in 1 message\n"
        assert printed(tmp_path, programs["customer"]) == "VOD traded for 43490.0000\n"
        assert printed(tmp_path, programs["tape"]).startswith("VOD      last 72.6000 bid None ask None volume 600\n")
        assert printed(tmp_path, programs["asynchronous"]) == "mark heard as sequence 2\n"
        program, output = notebook(ROOT / "examples" / "notebook.ipynb")
        assert printed(tmp_path, "-c", program) == output
        asked, *presses, verdict = printed(tmp_path, programs["quiz_buzzer"]).splitlines()
        assert asked == "asked at london-floor"
        answers = [line.split(maxsplit=1)[1] for line in presses]
        assert sorted(answers) == ["anna says Paris", "ben says Lyon", "carla says Paris"]
        first = next(answer for answer in answers if answer.endswith("Paris"))
        assert verdict == f"{first.split()[0]} wins"
