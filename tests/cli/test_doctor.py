"""`isocast doctor`: findings as a table or as JSON, and an exit code."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from isocast.cli.main import main
from isocast.runtime.watch import doctor
from isocast.runtime.watch.doctor import CheckOutcome, DoctorFinding, Wants

OK = DoctorFinding("clock", CheckOutcome.OK, "synchronised within 50 µs")
WARN = DoctorFinding("timers", CheckOutcome.WARN, "late by 3 ms", "stop what else runs")
FAIL = DoctorFinding("multicast", CheckOutcome.FAIL, "Network is unreachable", "ip link set lo up")


def put(monkeypatch: pytest.MonkeyPatch, *findings: DoctorFinding) -> list[Wants]:
    """Let the doctor find these; what it was asked to look at."""
    asked: list[Wants] = []

    def examine(wants: Wants) -> Iterator[DoctorFinding]:
        asked.append(wants)
        yield from findings

    monkeypatch.setattr(doctor, "examine", examine)
    return asked


def test_a_table_says_what_was_found_and_what_to_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(monkeypatch, OK, WARN)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "✔ ok    clock   synchronised within 50 µs\n" in out
    assert "! warn  timers  late by 3 ms\n" in out
    assert "\ntimers: stop what else runs\n" in out
    assert out.endswith("2 checks, 0 failed, 1 with a warning.\n")


def test_a_failure_is_exit_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    put(monkeypatch, OK, FAIL)
    assert main(["doctor"]) == 1
    assert "✖ fail  multicast" in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "failed": 1,
        "checks": [
            {"check": "clock", "outcome": "ok", "found": "synchronised within 50 µs", "change": None},
            {
                "check": "multicast",
                "outcome": "fail",
                "found": "Network is unreachable",
                "change": "ip link set lo up",
            },
        ],
    }


def test_a_markets_file_says_what_to_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = put(monkeypatch, OK)
    file = tmp_path / "market.toml"
    nodes = "".join(f'[nodes.{name}]\nrole = "primary-receiver"\n' for name in ("a", "b", "c"))
    server = '[nodes.x]\nrole = "reformation-server"\n'
    file.write_text(f'name = "test"\n[timing]\nprofile = "ci"\n{nodes}{server}', encoding="utf-8")
    assert main(["doctor", "--config", str(file)]) == 0
    assert [node.node for node in asked[0].nodes] == ["a", "b", "c", "x"]
    capsys.readouterr()


def test_a_bad_file_is_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--config", str(tmp_path / "none.toml")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_real_machine_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == int(report["failed"] > 0)
    assert {"clock", "multicast", "receive buffer"} <= {check["check"] for check in report["checks"]}
    for check in report["checks"]:
        assert (check["change"] is None) == (check["outcome"] == "ok"), check
