"""What a sweep visits."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocast.studies.sweeps.sweep import load_sweep, parse_seeds, parse_vary
from isocast.terms.errors import ConfigurationError


def scenario(tmp_path: Path, text: str = 'title = "Small"\nreceivers = 3\nmessages = 40\n') -> Path:
    file = tmp_path / "small.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_every_combination_with_every_seed(tmp_path: Path) -> None:
    sweep = load_sweep(scenario(tmp_path), ["loss=0,0.01", "gate=timed,majority"], "1-2,7")
    assert sweep.points == ((0, "timed"), (0, "majority"), (0.01, "timed"), (0.01, "majority"))
    assert sweep.runs[:4] == (((0, "timed"), 1), ((0, "timed"), 2), ((0, "timed"), 7), ((0, "majority"), 1))
    assert sweep.mapping((0.01, "timed")) == {
        "title": "Small", "receivers": 3, "messages": 40, "loss": 0.01, "gate": "timed"
    }  # fmt: skip


def test_without_anything_to_vary_there_is_one_point(tmp_path: Path) -> None:
    assert load_sweep(scenario(tmp_path), [], "3").runs == (((), 3),)


@pytest.mark.parametrize(
    "text, values",
    [
        ("messages=10_000, 5", (10_000, 5)),
        ("loss = 0.5", (0.5,)),
        ("gate=timed", ("timed",)),
        ('gate="timed"', ("timed",)),
        ("loss=0,0.1,", (0, 0.1)),
    ],
)
def test_values_are_written_as_in_a_file(text: str, values: tuple[object, ...]) -> None:
    assert tuple(parse_vary([text]).values()) == (values,)


@pytest.mark.parametrize(
    "texts, rule",
    [
        (["loss"], "KEY=VALUE"),
        (["loss="], "KEY=VALUE"),
        (["los=1"], 'did you mean "loss"'),
        (["seed=1,2"], "--seeds"),
        (["loss=0", "loss=1"], "twice"),
        (["loss=0.1,0.1"], "a value twice"),
    ],
)
def test_what_cannot_vary(texts: list[str], rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        parse_vary(texts)


@pytest.mark.parametrize("text, seeds", [("5", (5,)), ("1-3", (1, 2, 3)), ("4,1-2, 2", (1, 2, 4))])
def test_seeds(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "3-1", "1-", "-1", "1-99999999999999999999", "1-5000000"])
def test_what_are_no_seeds(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--seeds"):
        parse_seeds(text)


def test_too_many_runs(tmp_path: Path) -> None:
    values = ",".join(map(str, range(2, 2_002)))
    with pytest.raises(ConfigurationError, match="2,000,000 runs"):
        load_sweep(scenario(tmp_path), [f"messages={values}"], "1-1000")


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"small\.toml: recievers"):
        load_sweep(scenario(tmp_path, "recievers = 3\n"), [], "1")
