"""New, begun, lost: what a node that votes may start with."""

from pathlib import Path

import pytest
from tests.runtime.market.markets import market_of

from isocast.runtime.market import founding
from isocast.runtime.market.founding import begun, found_market, found_node, insist_on_past, is_new, join_node, joins
from isocast.runtime.market.model import Market
from isocast.terms.errors import ConfigurationError


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return market_of({"data": str(tmp_path / "data")})


def test_a_market_of_which_nothing_exists_is_founded_once(market: Market) -> None:
    assert found_market(market)
    assert all(is_new(market.directory_of(name)) for name in market.by_name)
    assert not found_market(market)
    assert sorted(path.name for path in market.data_directory.iterdir()) == sorted(market.by_name)


def test_a_place_that_is_kept_for_a_program_is_not_declared(tmp_path: Path) -> None:
    """It has no disk, so the word would lie there for ever."""
    desk = {"role": "customer", "lines": ["a", "b"], "start": False}
    market = market_of({"data": str(tmp_path / "data"), "nodes.desk": desk})
    assert found_market(market)
    assert not market.directory_of("desk").exists()
    assert is_new(market.directory_of("bank"))


def test_an_empty_directory_is_as_good_as_none(market: Market) -> None:
    """Whoever prepares a machine makes it, with the right owner."""
    market.data_directory.mkdir(parents=True)
    assert found_market(market)


def test_a_node_that_has_begun_is_not_new_again(market: Market) -> None:
    found_market(market)
    begun(market.directory_of("a"))
    assert not is_new(market.directory_of("a"))
    assert is_new(market.directory_of("b"))
    begun(market.directory_of("a"))


def test_a_market_that_lost_one_node_is_not_founded_for_it(market: Market) -> None:
    found_market(market)
    for path in market.directory_of("a").iterdir():
        path.unlink()
    market.directory_of("a").rmdir()
    assert not found_market(market)
    assert not is_new(market.directory_of("a"))
    with pytest.raises(ConfigurationError, match=r"a: has no data here\. If it has never run, start it with --new"):
        insist_on_past(market, market.node("a"))


@pytest.mark.parametrize("name, votes", [("a", True), ("x", True), ("a2", False), ("floor", False), ("bank", False)])
def test_only_who_votes_must_have_a_past(market: Market, name: str, votes: bool) -> None:  # noqa: FBT001
    plan = market.node(name)
    if votes:
        with pytest.raises(ConfigurationError, match="promises"):
            insist_on_past(market, plan)
        found_node(market, name)
    insist_on_past(market, plan)


def test_founding_that_was_interrupted_is_finished(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    declared: list[Path] = []
    declare = founding._declare  # noqa: SLF001

    def interrupted(directory: Path) -> None:
        if len(declared) == 3:
            raise KeyboardInterrupt
        declared.append(directory)
        declare(directory)

    monkeypatch.setattr(founding, "_declare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        found_market(market)
    monkeypatch.undo()
    for path in declared[:1]:
        begun(path)
        (path / "log").mkdir()
    assert found_market(market)
    assert [is_new(market.directory_of(name)) for name in market.by_name] == [False, *[True] * (len(market.nodes) - 1)]
    assert not found_market(market)


def test_one_node_is_declared_new_and_refused_once_it_has_run(market: Market) -> None:
    found_node(market, "a")
    found_node(market, "a")
    assert is_new(market.directory_of("a"))
    begun(market.directory_of("a"))
    (market.directory_of("a") / "log").mkdir()
    with pytest.raises(ConfigurationError, match="has run before: start it without --new"):
        found_node(market, "a")


def test_an_empty_directory_of_a_node_may_be_declared_new(market: Market) -> None:
    market.directory_of("a").mkdir(parents=True)
    found_node(market, "a")
    assert is_new(market.directory_of("a"))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="ascii")
    market = market_of({"data": str(tmp_path / "file" / "data")})
    with pytest.raises(ConfigurationError, match="data: cannot be written: Not a directory"):
        found_market(market)
    with pytest.raises(ConfigurationError, match="a: cannot be written: Not a directory"):
        found_node(market, "a")


# Joining a market that runs


def test_a_node_that_joins_is_declared_and_refused_once_it_has_run(market: Market) -> None:
    join_node(market, "a")
    join_node(market, "a")
    directory = market.directory_of("a")
    assert (is_new(directory), joins(directory)) == (True, True)
    insist_on_past(market, market.node("a"))
    begun(directory)
    assert not is_new(directory)
    (directory / "log").mkdir()
    with pytest.raises(ConfigurationError, match="has run before: start it without --join"):
        join_node(market, "a")


def test_founding_and_joining_are_not_both_said(market: Market) -> None:
    join_node(market, "a")
    with pytest.raises(ConfigurationError, match=r"declared with the other of --new and --join: remove .*joins first"):
        found_node(market, "a")
    found_node(market, "b")
    assert not joins(market.directory_of("b"))
    with pytest.raises(ConfigurationError, match="declared with the other"):
        join_node(market, "b")


@pytest.mark.parametrize("name,advised", [("a", True), ("x", False)])
def test_a_node_without_data_is_told_all_that_it_may_be(market: Market, name: str, *, advised: bool) -> None:
    with pytest.raises(ConfigurationError) as caught:
        insist_on_past(market, market.node(name))
    said = str(caught.value)
    assert "start it with --new, or with --join if the market runs already" in said
    assert "its data was lost" in said
    assert ("isocast ring remove a, isocast ring add NAME" in said) is advised
