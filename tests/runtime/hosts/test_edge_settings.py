"""Whom a listener may ask, from the market's file: the receivers that it hears may be dead, and its archive behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runtime.hosts.contexts import Surroundings, new_market, run
from tests.runtime.worlds import LAYERED

from isocast.hierarchy.customer_settings import CustomerSettings, Grade
from isocast.runtime.hosts.customer import customer_settings
from isocast.runtime.market.model import Market


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return new_market(tmp_path, {**LAYERED, "d": {"role": "primary-receiver", "tcp_port": 0}})


def settings_of(market: Market, name: str, grade: Grade = Grade.COMPLETE) -> CustomerSettings:
    async def work() -> CustomerSettings:
        return customer_settings(Surroundings(market, name).context(), grade)

    return run(work)


def names(market: Market, nodes: tuple[int, ...]) -> list[str]:
    return [market.name_of(node) for node in nodes]


def test_a_complete_customer_may_ask_every_receiver_with_a_door_those_first_that_it_hears(market: Market) -> None:
    resorts = names(market, settings_of(market, "bank").last_resorts)
    assert resorts[:2] == ["b", "c"]
    assert sorted(resorts) == ["a", "a2", "b", "c"]


def test_so_may_a_retransmit_server(market: Market) -> None:
    settings = settings_of(market, "archive")
    assert names(market, settings.servers) == ["a", "b"]
    assert sorted(names(market, settings.last_resorts)) == ["a", "a2", "b", "c"]


def test_whoever_wants_only_the_latest_asks_no_receiver(market: Market) -> None:
    assert settings_of(market, "ticker", Grade.LATEST).last_resorts == ()


def test_in_a_large_market_they_are_a_few_and_not_the_same_for_all(tmp_path: Path) -> None:
    many = {f"r{number}": {"role": "primary-receiver"} for number in range(12)}
    customers = {f"c{number}": {**LAYERED["bank"], "number": 40 + 7 * number} for number in range(3)}
    market = new_market(tmp_path, {**LAYERED, **many, **customers})
    found = [names(market, settings_of(market, name).last_resorts) for name in customers]
    assert all(len(resorts) == 8 and resorts[:2] == ["b", "c"] for resorts in found)
    assert len({tuple(resorts) for resorts in found}) == len(customers)
