"""Fairness and health: every figure of a small market that somebody could add up by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from tests.lake.direct import read_table
from tests.lake.markets import write_market
from tests.lake.measured import line, write_lines
from tests.trials.demo.canned import canned_market, write_journals

from isocast.checks.skew import ReleaseSkew
from isocast.lake.timing_advice import advise
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import source_id
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.market import EventFlag
from isocast.terms.timing import Gate, Timing
from isocast.trials.demo.summary import read_proof
from isocast.trials.evidence import gather
from isocast.wire.journal_blocks import ReleasedBlock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MS = MILLISECOND
BOUND = 2 * MS
DELAY = 100 * MS
LATE_AFTER = 10 * MS
LONDON, TOKYO = source_id(1), source_id(2)

COLUMNS = (
    "stripe int, sequence bigint, index int, token bigint, receiver bigint, source bigint, floor string, symbol string,"
    " flags int, event_ns bigint, instant_ns bigint, due_ns bigint, released_ns bigint, clock_bound_ns bigint,"
    " fetched boolean"
)


def released(spark: SparkSession, rows: Sequence[tuple[int, int, int, int]], **changes: Any) -> DataFrame:  # noqa: ANN401
    """(sequence, receiver, due after T_t, released after due), tokens of one message each, a second apart."""
    made = []
    for sequence, receiver, due, late in rows:
        instant = sequence * SECOND
        row: dict[str, Any] = {
            "stripe": 0,
            "sequence": sequence,
            "index": 0,
            "token": sequence,
            "receiver": receiver,
            "source": LONDON if sequence % 2 else TOKYO,
            "floor": "XLON" if sequence % 2 else "XTKS",
            "symbol": "ISO",
            "flags": 0,
            "event_ns": instant - 300 * MS,
            "instant_ns": instant,
            "due_ns": instant + due,
            "released_ns": instant + due + late,
            "clock_bound_ns": BOUND,
            "fetched": False,
        }
        made.append(tuple({**row, **changes}.values()))
    return spark.createDataFrame(made, COLUMNS)


def as_dicts(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def test_skew_is_held_to_twice_the_bound_and_its_sites_are_named(spark: SparkSession) -> None:
    from isocast.lake.transforms.skew import message_releases, release_skew, site_skew, worst_messages  # noqa: PLC0415

    rows = [
        *[(1, site, DELAY, late) for site, late in ((1, 0), (2, MS), (3, 3 * MS))],
        *[(2, site, DELAY, late) for site, late in ((1, 6 * MS), (2, 0), (3, MS))],
        # A fault of site 3: late by more than P.
        *[(3, site, DELAY, late) for site, late in ((1, 0), (2, 0), (3, 50 * MS))],
        # Owed to an earlier ring at site 1: its instant is later than that of the others.
        (4, 1, DELAY + SECOND, 0),
        (4, 2, DELAY, 0),
        # Nobody to compare with.
        (5, 2, DELAY, 0),
    ]
    opaque = released(spark, [(1, 131_073, DELAY, -50 * MS)]).unionByName(
        released(spark, [(2, 3, DELAY, 90 * MS)], fetched=True)
    )
    messages = message_releases(released(spark, rows).unionByName(opaque)).cache()
    skew = {row["sequence"]: row for row in as_dicts(release_skew(messages, LATE_AFTER))}
    assert {number: row["skew_ns"] for number, row in skew.items()} == {1: 3 * MS, 2: 6 * MS, 3: 50 * MS, 4: SECOND}
    assert {number: row["exceeds"] for number, row in skew.items()} == {1: False, 2: True, 3: False, 4: False}
    assert [number for number, row in sorted(skew.items()) if row["faulted"]] == [3, 4]
    assert (skew[2]["first_receiver"], skew[2]["last_receiver"], skew[2]["bound_ns"]) == (2, 1, 4 * MS)
    assert [row.sequence for row in worst_messages(release_skew(messages, LATE_AFTER), 3).collect()] == [2, 1, 4]
    sites = {row["receiver"]: row for row in as_dicts(site_skew(messages, LATE_AFTER))}
    assert {site: row["messages"] for site, row in sites.items()} == {1: 2, 2: 2, 3: 2}
    assert {site: row["max_ns"] for site, row in sites.items()} == {1: 6 * MS, 2: MS, 3: 3 * MS}
    assert {site: row["exceeding"] for site, row in sites.items()} == {1: 1, 2: 0, 3: 0}
    assert {site: row["first"] for site, row in sites.items()} == {1: 1, 2: 1, 3: 0}
    messages.unpersist()


def test_faults_are_counted_by_site_and_the_worst_named(spark: SparkSession) -> None:
    from isocast.lake.fairness import fairness_faults, worst_faults  # noqa: PLC0415
    from isocast.lake.transforms.skew import message_releases  # noqa: PLC0415

    rows = [(1, 1, DELAY, 0), (1, 2, DELAY, 20 * MS), (2, 1, DELAY, 5 * MS), (2, 2, DELAY + SECOND, MS)]
    messages = message_releases(released(spark, rows))
    faults = {row["receiver"]: row for row in as_dicts(fairness_faults(messages, LATE_AFTER))}
    assert [(faults[site]["late"], faults[site]["beyond_bound"], faults[site]["backlog"]) for site in (1, 2)] == [
        (0, 1, 0),
        (1, 1, 1),
    ]
    assert (faults[2]["worst_ns"], faults[2]["worst_sequence"], faults[2]["tokens"]) == (20 * MS, 1, 2)
    worst = as_dicts(worst_faults(messages, LATE_AFTER, 5))
    assert [(row["token"], row["receiver"], row["backlog_ns"]) for row in worst] == [(2, 2, SECOND), (1, 2, 0)]


def test_regions_wait_alike_and_inversions_between_them_are_counted(spark: SparkSession) -> None:
    from isocast.lake.fairness import entry_delays, messages_by_region, region_order  # noqa: PLC0415
    from isocast.lake.transforms.skew import message_releases  # noqa: PLC0415

    frames = []
    # (sequence, source, when it happened): London's second event overtakes Tokyo's, which happened 2 ms before.
    told = [(1, LONDON, 0), (2, TOKYO, MS), (3, LONDON, 12 * MS), (4, TOKYO, 10 * MS), (5, TOKYO, 500 * MS)]
    for sequence, source, at in told:
        event = 60 * SECOND + at
        frames.append(
            released(spark, [(sequence, 1, DELAY, 0), (sequence, 2, DELAY, 0)], source=source, event_ns=event)
            .drop("instant_ns")
            .selectExpr("*", f"{61 * SECOND} as instant_ns")
        )
    replayed = released(spark, [(9, 1, DELAY, 0)], source=LONDON, event_ns=10**15)
    # An opening, as the second stripe has it too.
    copy = {"stripe": 1, "symbol": "", "flags": int(EventFlag.COPIED)}
    frame = replayed.unionByName(released(spark, [(1, 1, DELAY, 0)], source=LONDON, **copy))
    for each in frames:
        frame = frame.unionByName(each)
    messages = messages_by_region(message_releases(frame), {1: "London"})
    delays = {row["region"]: row for row in as_dicts(entry_delays(messages))}
    assert {region: (row["messages"], row["not_live"]) for region, row in delays.items()} == {
        "London": (3, 1),
        "XLON": (1, 0),
        "XTKS": (2, 0),
    }
    alone = messages_by_region(message_releases(frame.where("stripe = 1")), {1: "London"}, lowest=1)
    assert as_dicts(entry_delays(alone))[0]["messages"] == 1, "nobody else counts it"
    (order,) = as_dicts(region_order(messages_by_region(message_releases(frame), {1: "L", 2: "T"}), 50 * MS))
    assert (order["one"], order["two"], order["pairs"], order["inversions"]) == ("L", "T", 2, 1)
    assert (order["one_earlier"], order["one_first"]) == (0.5, 1.0)


def test_every_figure_of_a_market_is_the_one_that_duckdb_finds(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.functions import expr  # noqa: PLC0415

    from isocast.lake.fairness import FairnessSettings, fairness  # noqa: PLC0415

    market = write_market(tmp_path / "market", events=3_000, span_s=60)
    late_ns, within_ns = 60_000, 500 * MS
    # The ring does not order by the floors' clocks; the generated market does.
    event_ns = "event_ns - sequence * 7919 % 13 * 300000000"
    journals = spark.read.format("isocast").option("receiver", "all").load(str(market.path))
    journals = journals.withColumn("event_ns", expr(event_ns))
    got = fairness(journals, None, FairnessSettings(late_after_ns=late_ns, within_ns=within_ns))
    rows = read_table(market.path, receiver="all")
    with duckdb.connect() as database:
        database.register("rows", rows)
        database.execute(f"create view released as select * replace ({event_ns} as event_ns) from rows")  # noqa: S608
        database.execute("""
            create table m as select *, released_ns - due_ns late, released_ns - min(released_ns) over w behind,
              2 * max(clock_bound_ns) over w bound, count(*) over w many from released where index = 0
            window w as (partition by stripe, sequence)""")
        database.execute(f"""
            create table s as select stripe, sequence, max(behind) skew, max(bound) bound,
              bool_or(late > {late_ns}) faulted from m where many > 1 group by all""")  # noqa: S608 - our own number
        ask = "select count(*), count(*) filter (skew > bound and not faulted), count(*) filter (faulted) from s"
        assert database.execute(ask).fetchall() == [(got.messages, got.exceeding, got.faulted)]
        ask = """select 'site' || receiver, count(*), quantile_disc(behind, 0.5), quantile_disc(behind, 0.99),
            quantile_disc(behind, 0.999), max(behind), count(*) filter (behind = 0)
            from m join s using (stripe, sequence) where not faulted group by receiver order by receiver"""
        keys: tuple[str, ...] = ("receiver", "messages", "p50_ns", "p99_ns", "p999_ns", "max_ns", "first")
        assert database.execute(ask).fetchall() == [tuple(row[key] for key in keys) for row in got.sites]
        ask = """select floor, count(*), quantile_disc(d, 0.5), quantile_disc(d, 0.99), max(d)
            from (select floor, instant_ns - event_ns d from m where receiver = 1) group by floor order by floor"""
        keys = ("region", "messages", "p50_ns", "p99_ns", "max_ns")
        assert database.execute(ask).fetchall() == [tuple(row[key] for key in keys) for row in got.entry]
        ask = f"""with n as (select floor a, sequence, lead(floor) over w b, lead(sequence) over w next,
              lead(event_ns) over w - event_ns apart from m where receiver = 1
              window w as (partition by stripe, event_ns // 60000000000 order by event_ns, sequence))
            select least(a, b), greatest(a, b), count(*), avg((a < b)::int), avg(((a < b) = (sequence < next))::int),
              count(*) filter (sequence > next and apart > 0)
            from n where a <> b and apart < {within_ns} group by 1, 2 order by 1, 2"""  # noqa: S608
        keys = ("one", "two", "pairs", "one_earlier", "one_first", "inversions")
        expected = [pytest.approx(row[2:]) for row in database.execute(ask).fetchall()]
        assert [tuple(row[key] for key in keys[2:]) for row in got.order] == expected
        assert len(expected) == 3
    assert all(row["inversions"] > 0 for row in got.order)
    assert 0 < got.faulted < got.messages


# ---- measurements


def test_places_that_lose_together_are_found(spark: SparkSession, tmp_path: Path) -> None:
    from isocast.lake.fairness import (  # noqa: PLC0415
        loss_correlation,
        losses_by_place,
        read_measurements,
    )

    for node, lossy in (("paris", {2, 5, 6}), ("rome", {2, 5, 6}), ("oslo", {1, 3, 7})):
        told = [
            line(
                node,
                second,
                {
                    "tokens_accepted": 2,
                    "data_received": 10,
                    **({"repairs_received": 3, "nacks_sent": 1} if second in lossy else {}),
                },
                [[9, 2 * second, 30 * MS]]
                if second in lossy
                else [[9, 2 * second, 30 * MS], [8, 2 * second + 1, 40 * MS]],
            )
            for second in range(10)
        ]
        write_lines(tmp_path, node, [*told, *[line(node, second, {}) for second in range(10, 40)]])
    lines, unread = read_measurements(spark, tmp_path)
    assert unread == {}
    losses = {row["node"]: row for row in as_dicts(losses_by_place(lines))}
    assert (losses["paris"]["tokens"], losses["paris"]["heard"], losses["paris"]["repairs_received"]) == (20, 17, 9)
    assert losses["paris"]["token_loss"] == pytest.approx(0.15)
    assert losses["paris"]["repairs_per_data"] == pytest.approx(0.09)
    pairs = {(row["one"], row["two"]): row for row in as_dicts(loss_correlation(lines))}
    assert pairs["paris", "rome"]["correlation"] == pytest.approx(1.0)
    assert pairs["paris", "rome"]["both"] == 3
    assert pairs["paris", "rome"]["lift"] == pytest.approx(10 / 3)
    assert pairs["oslo", "paris"]["correlation"] < 0
    assert pairs["paris", "rome"]["seconds"] == 10, "what nobody could lose is no evidence"
    assert pairs["oslo", "paris"]["lift"] == 0


def test_lines_that_cannot_be_read_are_counted_by_reason(spark: SparkSession, tmp_path: Path) -> None:
    from isocast.lake.fairness import (  # noqa: PLC0415
        delay_quantiles,
        read_measurements,
        token_delays,
    )

    good = [line("paris", second, {}, [[9, second, (second + 1) * MS]]) for second in range(100)]
    newer = json.dumps({**json.loads(good[0]), "v": 2})
    write_lines(tmp_path, "paris", [*good, '{"v": 1, "node": "pa', newer, "{}"])
    lines, unread = read_measurements(spark, tmp_path)
    assert unread == {"broken": 2, "newer": 1}
    (row,) = as_dicts(delay_quantiles(token_delays(lines), 0.95))
    assert (row["tokens"], row["p50_ns"], row["wanted_ns"], row["max_ns"]) == (100, 50 * MS, 95 * MS, 100 * MS)
    with pytest.raises(ConfigurationError, match="holds no measurements"):
        read_measurements(spark, tmp_path / "paris" / "measurements")


def test_the_advice_follows_the_slowest_receiver_by_the_papers_formulas() -> None:
    present = Timing(detect_ns=80 * MS, process_ns=10 * MS, retries_max=3, clock_error_ns=5 * MS, gate=Gate.MAJORITY)
    advice = advise(present, {"a": 40 * MS, "b": 51_234_567}, {"a": 2_000, "b": 2_000}, 0.999, 0.02)
    assert advice.slowest == "b"
    assert advice.wanted.detect_ns == 51_300_000, "rounded up to three digits"
    assert advice.wanted.retry_ns == 2 * 51_300_000 + 10 * MS
    assert advice.wanted.token_period_ns == 51_300_000 + 10 * MS + 3 * advice.wanted.retry_ns
    assert advice.wanted.release_delay_ns == advice.wanted.token_period_ns + 51_300_000 + 10 * MS
    assert advice.enough
    assert not advise(present, {"a": MS}, {"a": 999}, 0.999, 0.0).enough
    assert advise(present, {"a": MS}, {"a": 999}, 0.9, 0.0).wanted.detect_ns == 10 * MS, "never below 2ε"
    assert advice.give_up == pytest.approx(0.02 * (1 - 0.98**2) ** 3)


def test_secondary_receivers_do_not_decide_the_rings_times() -> None:
    """They wait δ_S longer before they ask; one that needs more than that is named."""
    ring = Timing(detect_ns=80 * MS, process_ns=10 * MS, clock_error_ns=MS)
    present = replace(ring, secondary_detect_ns=20 * MS, secondary_retry_ns=60 * MS, release_delay_ns=0)
    advice = advise(present, {"a": 50 * MS}, {"a": 9_999}, 0.999, 0.0, {"near": 71 * MS, "far": 73 * MS})
    assert advice.wanted.detect_ns == 50 * MS
    assert advice.below_allowed_ns == 72 * MS
    assert advice.below_short == ["far"]


def test_spark_and_the_journals_themselves_tell_the_same_skew_and_leave_out_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The demo shows both: two definitions would contradict each other on one screen."""
    from isocast.lake.transforms.skew import MESSAGE_COLUMNS, message_releases, skew_totals  # noqa: PLC0415

    market = canned_market(tmp_path)

    def late(blocks: list[ReleasedBlock]) -> list[ReleasedBlock]:
        """Beyond 2ε in token 1, later than P in token 2, owed to an earlier ring in token 3, fetched in token 4."""
        beyond = replace(blocks[0], released_at=blocks[0].due + 17 * MS)
        faulted = replace(blocks[1], released_at=blocks[1].due + SECOND)
        owed = replace(blocks[2], due=blocks[2].due + SECOND, released_at=blocks[2].due + SECOND)
        return [beyond, faulted, owed, replace(blocks[3], fetched=True)]

    names = [plan.name for plan in market.receivers]
    # The last token at one receiver alone.
    changes = {name: (lambda blocks: blocks[:4]) for name in names[1:]}
    write_journals(market, {**changes, names[-1]: late})
    own = read_proof(market).releases.figures().skew
    assert own == ReleaseSkew(
        8, 5 * MS, 17 * MS, 17 * MS, 10 * MS, exceeding=4, partly=4, faulted=8, late=4, backlog=4, alone=4
    )
    reader = spark.read.format("isocast").options(columns=",".join(MESSAGE_COLUMNS), receiver="all")
    frame = message_releases(reader.load(str(market.data_directory)))
    assert skew_totals(frame, market.timing.process_ns, len(names)) == own
    assert gather(market).skew == own, "and the lab"
