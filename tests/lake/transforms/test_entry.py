"""Who entered first, by frames: every figure is the one that `isocast fairness entry` has from the same journals."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.runtime.disk.journals import write_of
from tests.studies.entry.test_reactions import ORDER, block
from tests.wire.journal_samples import PERIOD

from isocast.studies.entry.journals import ContestKey, read_journals
from isocast.studies.entry.reactions import Reactions
from isocast.studies.entry.stream import cities_of
from isocast.terms.entry import EntryRule
from isocast.terms.instants import MILLISECOND
from isocast.terms.market import EventKind
from isocast.wire.events import MarketEvent, build_events, pack_events
from isocast.wire.journal_blocks import ReleasedBlock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CITIES = dict(enumerate(cities_of(("London", "Sydney", "Tokyo")), 1))
WITHIN = 5 * MILLISECOND
TOKENS, OWNERS, IDS = 24, 3, 12
RULES = {"released": EntryRule.ARRIVAL, "batch": EntryRule.BATCH}


def reacting(seed: int = 1) -> list[ReleasedBlock]:
    """Orders of three cities upon random instants: some come a token later, some twice, some alone, some too late."""
    random = np.random.default_rng(seed)
    waiting: dict[int, list[tuple[int, MarketEvent]]] = {token: [] for token in range(1, TOKENS + 2)}
    for token in range(1, TOKENS + 1):
        for number in range(IDS):
            at = (token - 1) * PERIOD + int(random.integers(1, PERIOD))
            for source in CITIES:
                chance = random.random()
                row = ORDER._replace(id=IDS * token + number, time=at + int(random.integers(0, WITHIN * 6 // 5)))
                rows = [] if chance < 0.1 else [row, row] if chance < 0.13 else [row]
                late = int(random.random() < 0.2)
                waiting[token + late] += [(source, one) for one in rows]
    made, sequence = [], 1
    for token, some in waiting.items():
        entered = [some[place] for place in random.permutation(len(some)).tolist()]
        messages = [(source, pack_events(build_events([row]))) for source, row in entered]
        messages.append((1, pack_events(build_events([ORDER._replace(kind=EventKind.CANCEL, time=token)]))))
        made.append(block(token, sequence, messages))
        sequence += len(messages)
    return made


def told(orders: DataFrame) -> dict[tuple[str, str, str], dict[str, object]]:
    from isocast.lake.transforms.entry import entry_shares  # noqa: PLC0415 - Spark loads when a test needs it

    rows = [row.asDict() for row in entry_shares(orders, OWNERS).collect()]
    return {(row.pop("rule"), row["first"], row["second"]): row for row in rows}


def plain(folder: Path) -> Reactions:
    found = read_journals([folder], CITIES, ContestKey.ID, WITHIN).reactions
    assert found is not None
    return found


def test_frames_and_journals_tell_the_same_shares_errors_and_what_is_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    from isocast.lake.transforms.entry import competing_orders, orders_left_out  # noqa: PLC0415

    for site in (1, 2):
        write_of(tmp_path / f"site{site}" / "journal", 0, site, reacting())
    expected = plain(tmp_path / "site1" / "journal")
    released = spark.read.format("isocast").option("receiver", "all").load(str(tmp_path))
    orders = competing_orders(released, {number: city.name for number, city in CITIES.items()}, WITHIN).cache()
    [left_out] = [row.asDict() for row in orders_left_out(orders).collect()]
    counted = expected.left_out.as_json()
    assert left_out == {name: counted[name] for name in left_out}
    assert min(left_out.values()) > 0
    found = told(orders)
    orders.unpersist()
    assert len(found) == 6
    for pair in combinations(sorted(expected.stream.names), 2):
        for name, rule in RULES.items():
            estimate = expected.estimate(rule, pair, OWNERS)
            assert estimate is not None
            assert found[name, *pair] == pytest.approx(estimate.as_json())
            assert 0.2 < estimate.share < 0.8


def test_a_place_with_one_token_has_a_share_and_no_error(spark: SparkSession, tmp_path: Path) -> None:
    from isocast.lake.transforms.entry import competing_orders  # noqa: PLC0415

    write_of(tmp_path / "site1" / "journal", 0, 1, reacting()[:2])
    released = spark.read.format("isocast").load(str(tmp_path))
    found = told(competing_orders(released, {number: city.name for number, city in CITIES.items()}, WITHIN))
    assert {row["standard_error"] for row in found.values()} == {None}
    assert all(isinstance(row["share"], float) for row in found.values())
