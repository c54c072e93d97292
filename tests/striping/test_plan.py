"""The plan: every symbol in exactly one stripe, one digest, one entry; and its file, whatever is wrong with it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.striping.plan import (
    EdgeStripe,
    StripePlan,
    plan_as_json,
    plan_entry,
    plan_from_mapping,
    plan_text,
    read_plan,
    read_plan_entry,
)
from isocast.striping.rates import budget_bytes, parse_rate, rate_text
from isocast.striping.sizes import ITCH_SIZES, PACKET_BYTES
from isocast.terms.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.market import EventKind
from isocast.wire.limits import MAX_CONTROL_BODY
from isocast.wire.packets import ControlEntry, ControlKind

SPARE = EdgeStripe(9, 0, "spare-0", 56_000, spare=True)
TECH = EdgeStripe(1, 0, "tech", 56_000, ("MSFT", "AAPL"))
OIL = EdgeStripe(2, 1, "oil", 64_000, ("XOM",))
SPARE_1 = EdgeStripe(10, 1, "spare-1", 56_000, spare=True)
PLAN = StripePlan(3, (SPARE, TECH, OIL, SPARE_1))

SYMBOLS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8)


@st.composite
def plans(draw: st.DrawFn) -> StripePlan:
    symbols = draw(st.lists(SYMBOLS, unique=True, max_size=30))
    cores = draw(st.integers(1, 3))
    homes = [draw(st.integers(1, 6)) for _ in symbols]
    stripes = [
        EdgeStripe(
            number, number % cores, f'the "{number}"', draw(st.integers(1_000, 10**9)),
            tuple(symbol for symbol, home in zip(symbols, homes, strict=True) if home == number),
            conflated=draw(st.booleans()),
        )
        for number in range(1, 7)
    ]  # fmt: skip
    spares = [EdgeStripe(100 + core, core, f"spare {core}", 56_000, spare=True) for core in range(cores)]
    return StripePlan(draw(st.integers(1, 2**32 - 1)), (*stripes, *spares), draw(st.integers(1, 10**12)))


@given(plans())
def test_a_plan_survives_its_file_and_its_entry(plan: StripePlan) -> None:
    for again in (read_plan(plan_text(plan), "p.toml"), plan_from_mapping(plan_as_json(plan), "p.json")):
        assert again == plan
        assert again.stripes == plan.stripes
    entry = plan_entry(plan)
    assert len(entry.body) <= MAX_CONTROL_BODY
    notice = read_plan_entry(entry)
    assert (notice.version, notice.digest) == (plan.version, plan.digest)
    assert (notice.stripes, notice.symbols) == (len(plan.stripes), plan.symbols)


@given(plans(), st.lists(SYMBOLS, max_size=20))
def test_every_symbol_is_in_exactly_one_stripe(plan: StripePlan, strangers: list[str]) -> None:
    named = [symbol for stripe in plan.stripes for symbol in stripe.symbols]
    asked = named + strangers
    numbers = plan.stripes_of(np.array(asked, "S8")).tolist()
    for symbol, number in zip(asked, numbers, strict=True):
        holders = [stripe.number for stripe in plan.stripes if symbol in stripe.symbols]
        assert [number] == (holders or [plan.spare_of(plan.cores[0]).number])
    assert plan.cores_of(np.array(asked, "S8")).tolist() == [plan.by_number[number].core for number in numbers]


def test_a_symbol_that_comes_on_another_core_stripe_is_a_stranger_there() -> None:
    symbols = np.array(["AAPL", "XOM", "NEW"], "S8")
    assert PLAN.stripes_of(symbols, 0).tolist() == [1, 9, 9]
    assert PLAN.stripes_of(symbols, 1).tolist() == [10, 2, 10]
    assert PLAN.stripes_of(symbols).tolist() == [1, 2, 9]
    with pytest.raises(LocalProtocolError, match="core stripe 5"):
        PLAN.stripes_of(symbols, 5)


def test_the_digest_is_of_the_plan_and_not_of_its_file() -> None:
    shuffled = StripePlan(3, (SPARE_1, OIL, replace(TECH, symbols=("AAPL", "MSFT")), SPARE), file="other.toml")
    assert shuffled.digest == PLAN.digest
    for changed in (
        replace(PLAN, version=4),
        replace(PLAN, token_period_ns=2 * SECOND),
        replace(PLAN, stripes=(SPARE, replace(TECH, rate=57_000), OIL, SPARE_1)),
        replace(PLAN, stripes=(SPARE, replace(TECH, symbols=("AAPL",)), OIL, SPARE_1)),
        replace(PLAN, stripes=(SPARE, replace(TECH, name="technology"), OIL, SPARE_1)),
    ):
        assert changed.digest != PLAN.digest


WRONG = {
    "version": (replace(TECH), {"version": 0}, "version: must be from 1"),
    "number": (replace(TECH, number=0), {}, "number: must be from 1"),
    "twice": (replace(TECH, number=2), {}, "number: 2 occurs twice"),
    "name": (replace(TECH, name="oil"), {}, "name: oil occurs twice"),
    "symbol twice": (replace(TECH, symbols=("XOM",)), {}, "symbols: XOM occurs twice"),
    "symbol": (replace(TECH, symbols=("TOO LONG",)), {}, "1 to 8 printable"),
    "rate": (replace(TECH, rate=0), {}, "rate: must be from 1 b/s"),
    "core": (replace(TECH, core=70_000), {}, "core: must be from 0"),
    "core without spare": (replace(TECH, core=2), {}, "core stripe 2 has 0 spare stripes"),
    "spare with symbols": (replace(TECH, spare=True), {}, "a spare stripe names none"),
    "period": (replace(TECH), {"token_period_ns": 0}, "token_period: must be above 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_plan_that_breaks_a_rule_is_refused(case: str) -> None:
    stripe, changes, rule = WRONG[case]
    values = {"version": 1, "stripes": (stripe, OIL, SPARE, SPARE_1), "file": "p.toml"} | changes
    with pytest.raises(ConfigurationError, match=rule) as caught:
        StripePlan(**values)  # type: ignore[arg-type]
    assert caught.value.file == "p.toml"


FILE = 'version = 1\n[[stripe]]\nnumber = 1\nname = "spare"\nrate = "56k"\nspare = true\n'

WRONG_FILES = {
    "version = 1\nstripes = []": 'stripes: is not a key here.*did you mean "stripe"',
    "= =": "neither TOML nor JSON",
    "{": "neither TOML nor JSON",
    "[]": "neither TOML nor JSON|must be a table",
    FILE.replace("rate", "bitrate"): 'bitrate: is not a key here.*did you mean "rate"',
    FILE.replace('"56k"', '"fast"'): "rate: must be a bit-rate",
    FILE.replace("true", '"yes"'): "spare: must be true or false",
    FILE.replace("number = 1\n", ""): "number: is missing",
    FILE.replace('"spare"', "7"): "name: must be a text",
    FILE + "symbols = [1]": "symbols: must be a list",
    'token_period = "soon"\n' + FILE: "token_period: must be a time",
    FILE.replace("version = 1", "stripe = 1\nversion = 1").replace(
        "[[stripe]]", "[other]"
    ): "stripe: must be a list|other",
    "version = 1": "stripe: there must be from 1",
}


@pytest.mark.parametrize("text", WRONG_FILES)
def test_a_file_that_breaks_a_rule_names_file_key_and_rule(text: str) -> None:
    with pytest.raises(ConfigurationError, match=WRONG_FILES[text]) as caught:
        read_plan(text, "p.toml")
    assert caught.value.file == "p.toml"


def test_a_rate_in_words_is_read() -> None:
    assert read_plan(FILE, "p.toml").stripes[0].rate == 56_000


@pytest.mark.parametrize(
    "entry",
    [
        ControlEntry(ControlKind.MARK, 1, bytes(24)),
        ControlEntry(ControlKind.STRIPE_PLAN, 1, bytes(23)),
        ControlEntry(ControlKind.STRIPE_PLAN, 1, bytes(24)),
        ControlEntry(ControlKind.STRIPE_PLAN, 1 << 40, plan_entry(PLAN).body),
    ],
)
def test_an_entry_that_announces_no_plan_is_refused(entry: ControlEntry) -> None:
    with pytest.raises(RemoteProtocolError):
        read_plan_entry(entry)


# ---- rates and sizes


@pytest.mark.parametrize(
    "text, rate", [("56k", 56_000), ("1.5M", 1_500_000), ("45 Mb/s", 45_000_000), ("64000", 64_000), ("1gbit/s", 10**9)]
)
def test_rates_as_people_write_them(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "k", "-1k", "56x", "0", "1.0001", "9999G", "5 6k"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match="^" + text.replace(".", r"\.")):
        parse_rate(text)


def test_rates_for_people() -> None:
    assert [rate_text(rate) for rate in (500, 56_000, 1_500_000)] == ["500 b/s", "56 kb/s", "1.5 Mb/s"]


def test_a_trade_costs_its_headers_too() -> None:
    assert PACKET_BYTES == 48
    assert ITCH_SIZES.kind_bytes[EventKind.TRADE] == 46
    assert ITCH_SIZES.kind_numbers[EventKind.CORRECTION] == 2
    assert budget_bytes(56_000, SECOND) == 7_000
    assert budget_bytes(56_000, 50 * MILLISECOND) == 350


@given(st.integers(150, 20_000), st.lists(st.sampled_from([14, 21, 27, 38, 41, 46, 50, 67]), min_size=1, max_size=400))
def test_the_room_for_messages_holds_however_they_are_packed(budget: int, lengths: list[int]) -> None:
    room = ITCH_SIZES.body_room(budget)
    chosen, total = [], 0
    for length in lengths:
        if total + length <= room:
            chosen.append(length)
            total += length
    ip_bytes, left = 0, 0
    capacity = min(ITCH_SIZES.mtu, budget) - PACKET_BYTES
    for length in chosen:
        if length > left:
            ip_bytes, left = ip_bytes + PACKET_BYTES, capacity
        ip_bytes, left = ip_bytes + length, left - length
    assert ip_bytes <= budget


def test_sizes_that_no_packet_can_keep_are_refused() -> None:
    for changes in ({"mtu": 60}, {"kind_bytes": (0, 1)}, {"kind_numbers": (0,) * 12}):
        with pytest.raises(LocalProtocolError):
            replace(ITCH_SIZES, **changes)
