"""Plans from histories: everything once, under the rate in any token period, related together, few moves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.striping.busy_days import events_of, sectors_of

from isocast.striping.comparing import judge
from isocast.striping.history import HistoryMaker, add_count_rows, is_count_header, make_history, read_sectors
from isocast.striping.loads import limits_for
from isocast.striping.making import MakingSettings, adjust_plan, make_plan
from isocast.striping.plan import StripePlan
from isocast.striping.sizes import ITCH_SIZES
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND
from isocast.terms.market import EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray

T0 = 1_700_000_000 * SECOND
FEW = settings(max_examples=30, deadline=None)


def trades(symbols: list[str], times: list[float]) -> EventArray:
    """Trades of 46 bytes, at so many seconds."""
    events = np.zeros(len(symbols), EVENT_DTYPE)
    events["kind"], events["floor"] = EventKind.TRADE, b"XNYS"
    events["symbol"] = symbols
    events["time"] = T0 + (np.array(times) * SECOND).astype(np.int64)
    return events


def exact_peak(events: EventArray, period: int) -> int:
    """Bytes of messages in the busiest half-open period, wherever it begins."""
    events = events[np.argsort(events["time"], kind="stable")]
    times = events["time"].astype(np.int64)
    sums = np.concatenate([[0], np.cumsum(ITCH_SIZES.bytes_table[events["kind"]])])
    ends = np.searchsorted(times, times + period)
    return int((sums[ends] - sums[: len(times)]).max()) if len(times) else 0


def own_events(plan: StripePlan, number: int, events: EventArray) -> EventArray:
    own: EventArray = events[plan.stripes_of(events["symbol"]) == number]
    return own


@st.composite
def histories(draw: st.DrawFn) -> EventArray:
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    symbols = draw(st.integers(1, 25))
    count = draw(st.integers(1, 600))
    names = [f"Y{number}" for number in random.zipf(1.5, count) % symbols]
    # Bursts: most of what happens, happens in few seconds.
    times = random.choice(random.random(8) * 60, count) + random.exponential(0.4, count)
    return trades(names, times.tolist())


@FEW
@given(histories(), st.sampled_from([4_000, 8_000, 56_000]), st.sampled_from([0.0, 0.5, 2.0]), st.integers(1, 3))
def test_every_symbol_once_and_no_token_period_above_the_rate(
    events: EventArray, rate: int, headroom: float, cores: int
) -> None:
    history = make_history([events])
    sectors = {f"Y{number}": f"Sector {number % 3}" for number in range(20)}
    made = make_plan(history, MakingSettings(rate=rate, headroom=headroom, cores=cores), sectors)
    plan = made.plan
    assert sorted(symbol for stripe in plan.stripes for symbol in stripe.symbols) == sorted(
        set(events["symbol"].astype(str))
    )
    assert plan.cores == tuple(range(cores))
    limits = limits_for(rate, SECOND, headroom, 4, ITCH_SIZES)
    for stripe in plan.stripes:
        peak = exact_peak(own_events(plan, stripe.number, events), SECOND)
        alone = [exact_peak(events[events["symbol"] == symbol.encode()], SECOND) for symbol in stripe.symbols]
        if stripe.conflated:
            assert len(stripe.symbols) == 1
        else:
            # A symbol may need the head-room alone; nobody makes its peak higher than an eighth more.
            assert peak <= max(limits.prices, min(limits.whole, max(alone, default=0) * 9))
            assert peak <= limits.whole
    assert judge(plan, history).holds
    again = make_plan(history, MakingSettings(rate=rate, headroom=headroom, cores=cores), sectors)
    assert again.plan == plan


def test_a_symbol_alone_above_the_rate_has_a_stripe_of_its_own_and_is_told() -> None:
    events = np.concatenate(
        [trades(["BIG"] * 400, [10 + place / 1_000 for place in range(400)]), trades(["A", "B", "C"], [1, 10.1, 30])]
    )
    made = make_plan(make_history([events]), MakingSettings())
    assert made.oversized == ("BIG",)
    alone = made.plan.by_number[int(made.plan.stripes_of(np.array(["BIG"], "S8"))[0])]
    assert (alone.symbols, alone.conflated) == (("BIG",), True)
    assert [s.symbols for s in made.plan.stripes if not s.spare and not s.conflated] == [("A", "B", "C")]


def test_what_is_busy_at_the_same_moments_comes_together() -> None:
    """Four groups of ten that take turns in being busy."""
    random = np.random.default_rng(1)
    names: list[str] = []
    times: list[float] = []
    for second in range(400):
        for symbol in range(40):
            busy = 6 if (second // 7 + symbol) % 4 == 0 else 4
            names += [f"G{symbol % 4}N{symbol // 4}"] * busy
            times += (second + random.random(busy)).tolist()
    made = make_plan(make_history([trades(names, times)]), MakingSettings(rate=32_000, headroom=0.1))
    pairs, by_chance = 0, 0.0
    for stripe in made.plan.stripes:
        groups = [symbol[:2] for symbol in stripe.symbols]
        pairs += sum(groups.count(group) * (groups.count(group) - 1) for group in set(groups))
        by_chance += len(groups) * (len(groups) - 1) * 9 / 39
    assert pairs >= 1.5 * by_chance


def test_sectors_stay_together_where_each_fills_its_stripe() -> None:
    names = [f"{sector}{number}" for sector in "XYZ" for number in range(8)]
    events = trades(names * 12, [second + 0.01 * place for second in range(12) for place in range(24)])
    sectors = {name: {"X": "Oil & Gas", "Y": "banks", "Z": "Tech"}[name[0]] for name in names}
    made = make_plan(make_history([events]), MakingSettings(rate=8_000, headroom=0.2), sectors)
    for stripe in made.plan.stripes:
        assert len({symbol[0] for symbol in stripe.symbols}) <= 1
    assert {stripe.name for stripe in made.plan.stripes} == {"oil-gas-1", "banks-1", "tech-1", "spare-0"}


def test_core_stripes_have_about_as_much_to_do() -> None:
    events = events_of(1, 300, 20_000)
    history = make_history([events])
    plan = make_plan(history, MakingSettings(cores=4), sectors_of(300)).plan
    counts = np.bincount(plan.cores_of(events["symbol"][events["symbol"] != b""]), minlength=4)
    assert counts.max() <= 1.3 * counts.min()


# ---- another day


def test_a_plan_holds_on_a_busy_day_that_it_was_not_made_from() -> None:
    plan = make_plan(make_history([events_of(1, 800, 50_000)]), MakingSettings(), sectors_of(800)).plan
    busy = events_of(2, 800, 70_000)
    verdict = judge(plan, make_history([busy]))
    assert verdict.holds
    assert max(load.wait for load in verdict.loads) <= 4
    for load in verdict.loads:
        exact = exact_peak(own_events(plan, load.stripe.number, busy[busy["kind"] < EventKind.CORRECTION]), SECOND)
        room = limits_for(load.stripe.rate, SECOND, 0, 4, ITCH_SIZES).whole
        assert load.peak >= load.stripe.rate * exact / room


def test_a_day_that_is_far_too_busy_is_told() -> None:
    plan = make_plan(make_history([events_of(1, 100, 5_000)]), MakingSettings(rate=16_000)).plan
    verdict = judge(plan, make_history([events_of(2, 100, 400_000)]))
    assert not verdict.holds
    assert all(load.wait > 4 for load in verdict.failing)


# ---- the next plan


def test_the_same_history_moves_nobody() -> None:
    history = make_history([events_of(1, 300, 20_000)])
    made = make_plan(history, MakingSettings(), sectors_of(300))
    again = adjust_plan(made.plan, history, MakingSettings(), sectors_of(300))
    assert again.moves == ()
    assert again.plan.version == 2
    assert again.plan.stripes == made.plan.stripes


def test_a_busier_day_moves_few_and_new_symbols_find_a_place() -> None:
    before = make_plan(make_history([events_of(1, 300, 40_000)]), MakingSettings(), sectors_of(300)).plan
    strangers = trades(["NEW1", "NEW2"], [1.0, 2.0])
    history = make_history([events_of(2, 300, 60_000), strangers])
    made = adjust_plan(before, history, MakingSettings(), sectors_of(300))
    assert judge(made.plan, history).holds
    moved = [move for move in made.moves if move.before is not None]
    assert len(moved) <= 30
    assert {move.symbol for move in made.moves if move.before is None} == {"NEW1", "NEW2"}
    for move in made.moves:
        assert move.symbol in made.plan.by_number[move.after].symbols
    assert made.plan.symbols == before.symbols + 2
    for stripe in before.stripes:
        kept = made.plan.by_number[stripe.number]
        assert (kept.name, kept.core, kept.rate, kept.spare) == (stripe.name, stripe.core, stripe.rate, stripe.spare)


def test_a_symbol_never_leaves_its_core_stripe() -> None:
    before = make_plan(make_history([events_of(1, 300, 20_000)]), MakingSettings(cores=2), sectors_of(300)).plan
    made = adjust_plan(before, make_history([events_of(2, 300, 150_000)]), MakingSettings(cores=2), sectors_of(300))
    assert made.moves
    for move in made.moves:
        assert move.before is not None
        assert made.plan.by_number[move.after].core == before.by_number[move.before].core


def test_a_symbol_that_was_silent_stays_where_it_is() -> None:
    before = make_plan(make_history([trades(["A", "B"], [1, 2])]), MakingSettings()).plan
    made = adjust_plan(before, make_history([trades(["A"], [1])]), MakingSettings())
    assert made.plan.stripes[0].symbols == ("A", "B")


# ---- tables


def test_counts_are_a_history() -> None:
    maker = HistoryMaker()
    text = "time,symbol,count\n1700000000,A,3\n1700000000.5,B,2\n1700000001000000000,A,1\n2023-11-14T22:13:22Z,B,4\n"
    assert is_count_header(text.splitlines()[0])
    assert add_count_rows(maker, text.splitlines(), "c.csv") == 4
    history = maker.make()
    assert history.names.tolist() == [b"A", b"B"]
    assert history.totals.tolist() == [4 * 50, 6 * 50]
    assert history.time_of(0) == T0


@pytest.mark.parametrize(
    "row, rule",
    [
        ("A,yesterday,3", "is not a time"),
        ("A,1,many", "is not a count"),
        ("A,-5,1", "is not a time since 1970"),
        ("A,NaN,1", "is not a time since 1970"),
        ("NINECHARS,1,1", "1 to 8 printable"),
        ("A,1", "has only 2 cells"),
    ],
)
def test_a_row_that_is_wrong_is_named_by_its_line(row: str, rule: str) -> None:
    with pytest.raises(ConfigurationError, match=f"c.csv: line 2: .*{rule}"):
        add_count_rows(HistoryMaker(), ["symbol,time,count", row], "c.csv")


def test_a_table_of_sectors() -> None:
    lines = ["name,symbol,sector", "Apple,AAPL,Technology", "long,TOOLONGNAME,Technology", '"Exxon, Inc",XOM,Energy']
    assert read_sectors(lines, "s.csv") == {"AAPL": "Technology", "XOM": "Energy"}
    with pytest.raises(ConfigurationError, match='has no column sector; did you mean "sectors"'):
        read_sectors(["symbol,sectors"], "s.csv")


def test_a_rate_below_one_packet_and_an_empty_history_are_clear_errors() -> None:
    history = make_history([trades(["A"], [1])])
    with pytest.raises(ConfigurationError, match="one packet needs"):
        make_plan(history, MakingSettings(rate=1_000))
    with pytest.raises(ConfigurationError, match="there is nothing in it"):
        HistoryMaker().make()
    with pytest.raises(ConfigurationError, match="--headroom"):
        MakingSettings(headroom=-1)
    with pytest.raises(ConfigurationError, match="--core"):
        MakingSettings(cores=0)
