"""A receiver follows rosters in the sequence: certified entries count, and what is cut off the log does not."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.ring.makers import Chain
from tests.runtime.market.test_roster_files import market_in

from isocast.ring.inputs import ControlRequested
from isocast.runtime.hosts.roster_following import RosterFollower, RosterPlace
from isocast.runtime.market.key_files import init_keys
from isocast.runtime.market.model import Market
from isocast.runtime.market.roster_files import load_book, load_roster
from isocast.runtime.market.roster_making import RosterWish, renew_roster
from isocast.runtime.watch.logs import get_log
from isocast.security.roster import Roster, RosterBook, read_roster_entry, roster_entry
from isocast.wire.packets import ControlEntry, Token


class Place:
    """One receiver without its machine."""

    def __init__(self, market: Market, book: RosterBook, directory: Path) -> None:
        self.receiver: Any = SimpleNamespace(
            ledger=SimpleNamespace(entries={}),
            certificates=SimpleNamespace(certified=0),
            releaser=SimpleNamespace(released=0),
            ring=SimpleNamespace(ring=(1, 2, 3)),
            site=1,
            held=10,
        )
        self.book = book
        self.alarms: list[str] = []
        self.fed: list[ControlRequested] = []
        self.operations: dict[str, Any] = {}
        place = RosterPlace(
            market, book, get_log(), lambda code, *_: self.alarms.append(code), self.operations, directory
        )
        self.follower = RosterFollower(place, cast("Any", self.receiver), self.fed.append)

    def certify(self, number: int) -> None:
        self.receiver.certificates.certified = number
        self.follower.passed()


@pytest.fixture
def market(tmp_path: Path) -> Market:
    found = market_in(tmp_path)
    init_keys(found)
    return found


@pytest.fixture
def second(market: Market) -> Roster:
    roster = renew_roster(market, RosterWish(extend=("a",), valid_ns=2**61))
    assert roster is not None
    return roster


@pytest.fixture
def place(market: Market, tmp_path: Path) -> Place:
    """Started before there is a second roster."""
    return Place(market, load_book(market), tmp_path)


def token(number: int, *entries: ControlEntry) -> Token:
    return replace(Chain().add().token, token_number=number, control=entries)


def test_an_entry_counts_once_it_is_certified(place: Place, second: Roster) -> None:
    place.follower.completed(token(5, roster_entry(second, 20)))
    place.certify(4)
    assert place.book.at(30).serial == 1
    place.certify(5)
    assert [place.book.at(number).serial for number in (19, 20)] == [1, 2]


def test_a_token_that_is_replaced_before_that_announces_nothing(place: Place, second: Roster) -> None:
    place.follower.completed(token(5, roster_entry(second, 20)))
    place.follower.completed(token(5))
    place.certify(6)
    assert place.book.at(30).serial == 1


def test_what_is_cut_off_the_log_is_withdrawn(place: Place, second: Roster, tmp_path: Path) -> None:
    place.follower.completed(token(5, roster_entry(second, 20)))
    place.certify(5)
    place.follower.completed(token(5))
    assert place.book.at(30).serial == 1
    assert json.loads((tmp_path / "rosters-in-force.json").read_bytes()) == {"1": 0}
    place.follower.completed(token(7, roster_entry(second, 25)))
    place.certify(7)
    assert [place.book.at(number).serial for number in (24, 25)] == [1, 2]


def test_a_restart_knows_again_since_when_it_counts(
    place: Place, second: Roster, market: Market, tmp_path: Path
) -> None:
    place.follower.completed(token(5, roster_entry(second, 20)))
    place.certify(5)
    again = Place(market, load_book(market), tmp_path)
    assert [number for number, _ in again.book.entries] == [0, 20]
    (tmp_path / "rosters-in-force.json").write_text("[]", encoding="ascii")
    assert Place(market, load_book(market), tmp_path).book.entries == ((0, second),)


def test_a_roster_of_another_digest_is_not_put_into_force(place: Place, second: Roster) -> None:
    place.follower.completed(token(5, roster_entry(replace(second, authorities=(bytes(32),)), 20)))
    place.certify(5)
    assert place.alarms == ["roster-missing-2"]
    assert place.book.at(30).serial == 1


def test_an_entry_of_another_form_is_passed_over(place: Place, second: Roster) -> None:
    place.follower.completed(token(5, roster_entry(second, 20)._replace(body=b"short")))
    place.certify(5)
    assert (place.alarms, place.book.at(30).serial) == ([], 1)


async def _asked(place: Place, name: str, **request: object) -> dict[str, object]:
    return dict(await place.operations[name](request))


def test_an_operator_announces_the_next_roster_two_rounds_ahead(place: Place, second: Roster) -> None:
    assert asyncio.run(_asked(place, "roster")) == {"newest": 2, "counting": 1, "revoked": 0}
    assert asyncio.run(_asked(place, "announce-roster", serial=2)) == {"serial": 2, "effective": 24}
    (wanted,) = place.fed
    assert read_roster_entry(wanted.entry, 11) == (2, second.digest, 24)


def test_files_that_are_there_twice_are_no_news(place: Place, second: Roster, market: Market) -> None:
    for _ in range(2):
        assert asyncio.run(_asked(place, "roster"))["newest"] == second.serial == load_roster(market).serial
