"""Streams of orders: drawn from a seed, or read from a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isocast.studies.entry.stream import cities_of, contests_within, draw_stream, read_stream
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND

PAIR = cities_of(("London", "SYD"))


def drawn(seed: int, reaction_ns: float = 0.0) -> list[tuple[int, int, int]]:
    stream = draw_stream(PAIR, 50, np.random.default_rng(seed), window_ns=SECOND, reaction_ns=reaction_ns)
    return list(zip(stream.instants.tolist(), stream.city.tolist(), stream.contest.tolist(), strict=True))


def test_a_stream_is_a_function_of_its_seed() -> None:
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_every_city_reacts_once_to_each_release_in_its_window() -> None:
    rows = drawn(1)
    assert len(rows) == 100
    assert sorted((contest, city) for _, city, contest in rows) == [(n, city) for n in range(50) for city in (0, 1)]
    assert all(contest * SECOND <= instant <= (contest + 1) * SECOND for instant, _, contest in rows)
    instants = {contest: {at for at, _, other in rows if other == contest} for contest in range(50)}
    assert all(len(found) == 1 for found in instants.values()), "all decide at the instant of the release"


def test_reactions_take_their_time() -> None:
    rows = drawn(1, reaction_ns=1e6)
    assert len({instant for instant, _, _ in rows}) == 100
    assert rows == sorted(rows), "in the order of time"


def test_contests_by_time_begin_with_their_first_order() -> None:
    assert contests_within(np.array([0, 4, 9, 10, 19, 30], np.int64), 10).tolist() == [0, 0, 0, 1, 1, 2]


def written(folder: Path, text: str) -> Path:
    path = folder / "orders.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_with_releases_and_accounts(tmp_path: Path) -> None:
    text = "time_ns,city,account,release\n20,London,7,b\n10,Sydney,8,a\n12,LDN,9,a\n25,Sydney,8,b\n"
    stream = read_stream(written(tmp_path, text), 1)
    assert stream.names == ("London", "Sydney")
    assert stream.instants.tolist() == [10, 12, 20, 25]
    assert stream.city.tolist() == [1, 0, 0, 1]
    assert stream.account.tolist() == [2, 3, 1, 2]
    assert stream.contest.tolist() == [1, 1, 0, 0]


def test_a_table_without_them_is_cut_by_time(tmp_path: Path) -> None:
    stream = read_stream(written(tmp_path, "city,time_ns\nSydney,200\nLondon,100\nSydney,105\n"), 50)
    assert stream.contest.tolist() == [0, 0, 1]
    assert stream.account.tolist() == [2, 1, 1], "a city is one trader"


@pytest.mark.parametrize(
    "text, told",
    [
        ("city,when\nLondon,1\n", "time_ns: is missing"),
        ("time_ns,city\n", "there is no order"),
        ("time_ns,city\n1,Lodnon\n", 'line 2: unknown city "Lodnon"'),
        ("time_ns,city\n1,London\n1.5,London\n", "line 3: time_ns is a whole number"),
        ("time_ns,city\n-1,London\n", "line 2: time_ns is a whole number"),
        ("time_ns,city\n99999999999999999999,London\n", "line 2: time_ns is a whole number"),
        ("time_ns,city\n1\n", 'line 2: unknown city ""'),
    ],
)
def test_a_bad_table_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        read_stream(written(tmp_path, text), 50)
    assert told in str(error.value)


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_stream(tmp_path / "no.csv", 50)


@pytest.mark.parametrize("names, told", [(("Lodnon",), "unknown city"), (("London", "LDN"), "London comes twice")])
def test_cities_are_known_and_different(names: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        cities_of(names)
