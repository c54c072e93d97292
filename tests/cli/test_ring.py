"""`isocast ring`: what an operator sees and types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtime.worlds import SMALL, Nodes, World, market_file, running, wait_until

from isocast.cli.main import main

FOUR: Nodes = {
    **{name: {**node, "http_port": 7780} for name, node in SMALL.items() if name in ("a", "b", "c", "x", "floor")},
    "d": {"role": "primary-receiver", "http_port": 7780},
    "bank": {**SMALL["bank"], "retransmit": [], "start": False},
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    # What is asked of a ring that re-forms because a machine was late is refused, and rightly.
    calm = {"timing": {"detect": "60ms", "process": "200ms"}}
    with running(market_file(tmp_path, FOUR, settings=calm)) as world:
        wait_until(lambda: all(len(_ring(world, name)) == 4 for name in "abcd"))
        yield world


def _ring(world: World, name: str) -> tuple[str, ...]:
    host = world.nodes[name].host
    return () if host is None else host.gauges().ring or ()


def test_status_and_drain(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(world.path)
    assert main(["ring", "status", "-c", config, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert sorted(report["ring"]) == sorted(report["universe"]) == ["a", "b", "c", "d"]
    assert report["majority"] == 3
    assert report["whole"] is True
    assert report["policy"] == "majority"
    assert [one["name"] for one in report["receivers"]] == ["a", "b", "c", "d"]
    assert main(["ring", "drain", "d", "-c", config]) == 0
    assert "d is off the ring" in capsys.readouterr().out
    assert main(["ring", "status", "-c", config]) == 1
    table = capsys.readouterr().out
    assert "in U, drained" in table
    assert "U has 4: a, b, c, d; a majority is 3." in table
    assert main(["ring", "drain", "d", "--undo", "-c", config]) == 0
    assert "d is on the ring again" in capsys.readouterr().out


def test_status_of_a_market_that_is_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(market_file(tmp_path, FOUR))
    assert main(["ring", "status", "-c", config]) == 1
    said = capsys.readouterr().out
    assert main(["ring", "-c", config]) == 1
    assert capsys.readouterr().out == said
    assert "there is no ring yet" in said
    assert "Connection refused" in said
    assert "not in U" not in said  # Nobody is there to say so.


@pytest.mark.parametrize(
    "words, error, code",
    [
        (["drain", "bank"], "only primary receivers are on the ring and in U", 2),
        (["drain", "dd"], 'did you mean "d"', 2),
        (["add", "d"], "no primary receiver answers", 1),
        (["remove", "d"], "no primary receiver answers", 1),
        (["restart", "nobody"], "nobody", 2),
        (["restart"], "no node answers below", 1),
        (["restart", "a"], "a: .*no process listens", 1),
        (["force", "a", "--yes"], "two or more", 2),
        (["force", "a", "b"], "add --yes if you are certain that c, d will never run again", 2),
        (["force", "a", "b", "--yes"], "no primary receiver answers", 1),
    ],
)
def test_what_cannot_be_done_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], error: str, code: int
) -> None:
    config = str(market_file(tmp_path, FOUR))
    assert main(["ring", *words, "-c", config]) == code
    said = capsys.readouterr().err
    assert any(_matches(error, line) for line in said.splitlines()), said


def _matches(pattern: str, line: str) -> bool:
    first, _, second = pattern.partition(".*")
    return first in line and second in line
