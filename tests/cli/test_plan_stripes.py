"""`isocast plan stripes`: days in, a plan out, and whether it holds on another day."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.disk.journals import write
from tests.wire.journal_samples import blocks

from isocast.cli.main import main
from isocast.striping.plan import read_plan
from isocast.wire.events import are_events, events_view

COUNTS = "symbol,time,count\n" + "".join(
    f"S{number},{1_700_000_000 + second},{1 + number % 3}\n" for number in range(30) for second in range(0, 60, 7)
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "counts.csv"
    path.write_text(COUNTS, encoding="utf-8")
    return path


def told(capsys: pytest.CaptureFixture[str]) -> Any:  # noqa: ANN401  # JSON
    return json.loads(capsys.readouterr().out)


def test_a_plan_from_a_table_of_counts(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "stripes.toml"
    assert main(["plan", "stripes", str(table), "--rate", "8k", "--out", str(out), "--json"]) == 0
    value = told(capsys)
    plan = read_plan(out.read_text(encoding="utf-8"), "stripes.toml")
    assert plan.digest.hex() == value["digest"]
    assert plan.symbols == value["symbols"] == 30
    assert {row["rate"] for row in value["stripes"]} == {8_000}
    assert all(row["holds"] and row["peak"] <= 8_000 for row in value["stripes"])
    assert tomllib.loads(out.read_text(encoding="utf-8"))["version"] == 1


def test_a_synthetic_day_a_busy_one_and_the_next_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day, busy, far = (str(tmp_path / name) for name in ("day.events", "busy.events", "far.events"))
    for path, trades in ((day, 4_000), (busy, 6_000), (far, 60_000)):
        assert main(["feed", "generate", "--symbols", "60", "--trades", str(trades), path]) == 0
    sectors = tmp_path / "sectors.csv"
    plan, following = str(tmp_path / "plan.json"), str(tmp_path / "next.toml")
    assert main(["plan", "stripes", day, "--rate", "24k", "--out", plan]) == 0
    out = capsys.readouterr().out
    assert "60 symbols on" in out
    assert "A line of 56 kb/s takes 2" in out
    assert main(["plan", "stripes", "--from", plan, "--check", busy]) == 0
    assert "it holds; the longest wait" in capsys.readouterr().out
    assert main(["plan", "stripes", "--from", plan, "--check", far, "--patience", "0", "--json"]) == 1
    assert told(capsys)["checks"][0]["holds"] is False
    assert main(["plan", "stripes", "--from", plan, "--check", far, "--patience", "0"]) == 1
    assert "DOES NOT HOLD" in capsys.readouterr().out
    sectors.write_text("symbol,sector\nAAA,Energy\nAAB,Energy\n", encoding="utf-8")
    words = [
        "plan",
        "stripes",
        day,
        far,
        "--rate",
        "24k",
        "--from",
        plan,
        "--sectors",
        str(sectors),
        "--out",
        following,
    ]
    assert main(words) == 0
    assert "symbols moved, 0 new." in capsys.readouterr().out
    assert main(["plan", "stripes", "--from", following, "--check", far]) == 0


def test_the_plan_stands_beside_a_hash_in_table_and_json(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sectors = tmp_path / "sectors.csv"
    rows = "".join(f"S{number},{'odd' if number % 2 else 'even'}\n" for number in range(30))
    sectors.write_text("symbol,sector\n" + rows, encoding="utf-8")
    words = ["plan", "stripes", str(table), "--rate", "8k", "--sectors", str(sectors)]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "Beside a hash of the symbols" in out
    assert "Customers of one sector" in out
    assert main([*words, "--json"]) == 0
    value = told(capsys)
    beside = value["against_hash"]
    count = sum(not row["spare"] for row in value["stripes"])
    assert beside["planned"]["stripes"] == beside["hashed"]["stripes"] == count
    assert beside["planned"]["too_busy"] == 0
    assert [row["sector"] for row in beside["sectors"]] == ["even", "odd"]
    assert all(row["stripes"] <= row["hashed_stripes"] for row in beside["sectors"])
    assert main(["plan", "stripes", "--from", _plan_file(tmp_path, value), "--check", str(table), "--json"]) == 0
    assert told(capsys)["against_hash"] is None


def _plan_file(folder: Path, value: dict[str, Any]) -> str:
    path = folder / "made.json"
    path.write_text(json.dumps(value["plan"]), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("width", [700, 1_200])
def test_pictures(table: Path, width: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    png, svg = tmp_path / "plan.png", tmp_path / "plan.svg"
    words = ["plan", "stripes", str(table), "--rate", "8k", "--png", str(png), "--svg", str(svg), "--width", str(width)]
    assert main(words) == 0
    assert int.from_bytes(png.read_bytes()[16:20]) == width
    text = svg.read_text(encoding="utf-8")
    assert text.rstrip().endswith("</svg>")
    assert "dc:date" not in text, "the same plan draws the same bytes, whatever the day"
    assert capsys.readouterr().err.count("Written:") == 2


def test_a_journal_is_a_history_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "journal"
    released = blocks(3)
    write(folder, released)
    assert main(["plan", "stripes", str(folder), "--json"]) == 0
    events = [events_view(message[3]) for block in released for message in block.messages if are_events(message[3])]
    symbols = {symbol for part in events for symbol in part["symbol"].tolist() if symbol}
    assert told(capsys)["symbols"] == len(symbols) > 0


WRONG = {
    "": "HISTORY: is missing",
    "TABLE --rate fast": '--rate: must be a bit-rate such as 56k, 1.5M or 56000, not "fast"',
    "TABLE --rate 100": "one packet needs",
    "TABLE --headroom -1": "--headroom: must be from 0",
    "TABLE --core 0": "--core: must be from 1",
    "TABLE --token-period soon": "--token-period: must be a time",
    "TABLE --patience -1": "--patience: must be from 0",
    "TABLE --rows 0": "--rows: must be at least 1",
    "TABLE --width 10": "--width: must be from 600",
    "TABLE --png nowhere/x.png": "--png: there is no directory nowhere",
    "TABLE --out nowhere/x.toml": "--out: there is no directory nowhere",
    "--from PLAN --check TABLE --png x.png": "HISTORY: is missing: a picture shows a plan on its history",
    "TABLE --sectors TABLE": "has no column sector",
    "TABLE --sectors nowhere.csv": "nowhere.csv: file: cannot be read: No such file",
    "nowhere.parquet": "cannot be read",
    "nowhere.csv": "nowhere.csv: file: cannot be read",
    "--from TABLE --check TABLE": "is neither TOML nor JSON",
    "--from nowhere.toml --check TABLE": "nowhere.toml: file: cannot be read",
    "--from PLAN": "--check: is missing",
    "TABLE --check EMPTY": "the file has no events",
}


@pytest.mark.parametrize("words", WRONG)
def test_bad_input_is_one_line(words: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, empty = tmp_path / "plan.toml", tmp_path / "empty.csv"
    plan.write_text('version = 1\n[[stripe]]\nnumber = 1\nname = "s"\nrate = 8000\nspare = true\n', encoding="utf-8")
    empty.write_text("symbol,time,count\n", encoding="utf-8")
    places = {"TABLE": str(table), "PLAN": str(plan), "EMPTY": str(empty)}
    assert main(["plan", "stripes", *[places.get(word, word) for word in words.split()]]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert WRONG[words] in err
