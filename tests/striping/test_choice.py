"""Customers: symbols to stripes, and stripes to a line."""

import pytest

from isocast.striping.plan import EdgeStripe, StripePlan
from isocast.striping.rates import stripes_that_fit
from isocast.striping.routing import choose_stripes, stripes_for
from isocast.terms.errors import ConfigurationError

STRIPES = tuple(EdgeStripe(number, 0, f"s{number}", 56_000, (f"A{number}", f"B{number}")) for number in range(1, 901))
PLAN = StripePlan(1, (*STRIPES, EdgeStripe(1_000, 0, "spare", 56_000, spare=True)))


def test_symbols_lead_to_their_stripes_once_each() -> None:
    choice = stripes_for(PLAN, ["A3", "B3", "A1", "NEW"])
    assert choice.numbers == (1, 3, 1_000)
    assert choice.unnamed == ("NEW",)
    assert choice.rate == 3 * 56_000


@pytest.mark.parametrize("rate, count", [(56_000, 1), (1_500_000, 26), (45_000_000, 803)])
def test_a_line_takes_as_many_as_fit(rate: int, count: int) -> None:
    choice = choose_stripes(PLAN, rate)
    assert len(choice.stripes) == count == stripes_that_fit(rate, 56_000)
    assert choice.rate <= rate < choice.rate + 56_000
    assert choice.symbols == 2 * count


def test_what_is_preferred_comes_first() -> None:
    assert choose_stripes(PLAN, 120_000, preferred=[700]).numbers == (1, 700)
    with pytest.raises(ConfigurationError, match="no stripe 5000"):
        choose_stripes(PLAN, 120_000, preferred=[5_000])


def test_the_spare_stripe_is_chosen_last() -> None:
    everything = choose_stripes(PLAN, 10**9)
    assert len(everything.stripes) == 901
    assert choose_stripes(PLAN, 900 * 56_000).numbers[-1] == 900


def test_symbols_that_do_not_fit_are_a_clear_error() -> None:
    assert choose_stripes(PLAN, 56_000, ["A3", "B3"]).numbers == (3,)
    with pytest.raises(
        ConfigurationError,
        match=r"on 2 stripes of 112 kb/s together \(s3 56 kb/s, s4 56 kb/s\); a line of 56 kb/s takes 1",
    ):
        choose_stripes(PLAN, 56_000, ["A3", "A4"])


def test_a_line_below_the_narrowest_stripe_is_a_clear_error() -> None:
    with pytest.raises(ConfigurationError, match=r"no stripe fits 28.8 kb/s: the narrowest, s1, has 56 kb/s"):
        choose_stripes(PLAN, 28_800)


def test_what_is_no_symbol_is_a_clear_error() -> None:
    with pytest.raises(ConfigurationError, match="1 to 8 printable"):
        stripes_for(PLAN, ["not a symbol"])
