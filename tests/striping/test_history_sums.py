"""Tables of sums: bytes that were added up elsewhere count as they are; without them each message has one length."""

from __future__ import annotations

import numpy as np
import pytest

from isocast.striping.history import MESSAGE_BYTES, HistoryMaker, add_count_rows
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND

HEADER = "symbol,time,count,prices,everything\n"


def test_sums_count_as_they_are() -> None:
    maker = HistoryMaker()
    lines = [HEADER, f"AA,{1_700_000_000 * SECOND},3,100,139\n", f"AA,{1_700_000_001 * SECOND},1,0,39\n"]
    assert add_count_rows(maker, [*lines, f",{1_700_000_000 * SECOND},1,0,27\n"], "sums.csv") == 3
    history = maker.make()
    assert maker.events == 5
    assert history.names.tolist() == [b"AA"]
    assert (history.prices.tolist(), history.everything.tolist()) == ([100, 0], [139, 39])
    assert history.floor_wide.tolist() == [27]


def test_a_table_with_one_of_the_two_is_a_table_of_counts() -> None:
    maker = HistoryMaker()
    add_count_rows(maker, ["symbol,time,count,prices\n", "AA,1700000000,3,100\n"], "counts.csv")
    history = maker.make()
    assert history.prices.tolist() == history.everything.tolist() == [3 * MESSAGE_BYTES]


@pytest.mark.parametrize("row, rule", [("AA,1,1,-3,5", "is not a count"), ("AA,1,1,3", "has only 4 cells")])
def test_a_sum_that_is_none_is_named_by_its_line(row: str, rule: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"sums\.csv: line 2: .*{rule}"):
        add_count_rows(HistoryMaker(), [HEADER, f"{row}\n"], "sums.csv")


def test_parts_of_sums_add_up_like_the_whole() -> None:
    names, times = np.array([b"AA", b"AA", b"BB"]), np.array([0, 1, 5], np.int64) * SECOND
    counts, prices, everything = (np.array(values, np.int64) for values in ([1, 2, 3], [10, 20, 30], [11, 22, 33]))
    whole, parts = HistoryMaker(), HistoryMaker()
    whole.add_sizes(names, times, counts, prices, everything)
    for at in (2, 0, 1):
        one = slice(at, at + 1)
        parts.add_sizes(names[one], times[one], counts[one], prices[one], everything[one])
    assert whole.make().prices.tolist() == parts.make().prices.tolist() == [10, 20, 30]


def test_more_bytes_than_64_bits_count_are_refused_and_not_wrapped() -> None:
    maker = HistoryMaker()
    counts = np.full(8, 10**18 // 50)
    with pytest.raises(ConfigurationError, match=r"more than 2\^62"):
        maker.add_counts(np.full(8, b"AA"), np.arange(8) * SECOND, counts, 50)
