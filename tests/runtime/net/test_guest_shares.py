"""Shares of a door among guests: fair by address and key, bounded in memory, and whoever is greedy is named."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest
from tests.runtime.worlds import run

from isocast.runtime.market.model import GuestTable
from isocast.runtime.net import guest_shares
from isocast.runtime.net.guest_shares import GRANT_MAX, LOUDEST, GuestShare, GuestShares
from isocast.terms.instants import SECOND

KEY = "1a2b3c4d"


class Clock:
    """Stands still unless somebody waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        real_sleep = asyncio.sleep

        async def sleep(seconds: float) -> None:
            self.now += round(seconds * SECOND)
            await real_sleep(0)

        monkeypatch.setattr(asyncio, "sleep", sleep)

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def named() -> list[str]:
    return []


def shares_of(named: list[str], clock: Clock, share: int = 4_000, total: int = 20_000, most: int = 192) -> GuestShares:
    table = GuestTable(share=share, total=total, most=most)
    return GuestShares(table, lambda one: named.append(str(one)), clock)


def share(shares: GuestShares, address: str = "10.0.0.1", key: str = KEY) -> GuestShare:
    with shares.visiting(address, key) as guest:
        assert guest is not None
        return guest.share


def test_a_burst_is_given_at_once_and_then_the_rate(named: list[str], clock: Clock) -> None:
    shares = shares_of(named, clock, share=2_000)
    mine = share(shares)

    async def work() -> None:
        assert [await shares.grant(mine, 5_000) for _ in range(2)] == [GRANT_MAX, 2_000 - GRANT_MAX]
        assert (clock.now, named) == (0, [])
        total = 0
        while clock.now < SECOND:
            total += await shares.grant(mine, 5_000)
        assert 2_000 <= total <= 2_000 + GRANT_MAX
        assert named == [f"guest 10.0.0.1 (key {KEY})"], "once in ten seconds"
        clock.now += 10 * SECOND
        for _ in range(3):
            await shares.grant(mine, 5_000)
        assert len(named) == 2

    run(work())


def test_others_do_not_wait_for_a_greedy_one(named: list[str], clock: Clock) -> None:
    shares = shares_of(named, clock, share=100, total=50_000)
    greedy, other, same_address = share(shares), share(shares, "10.0.0.2"), share(shares, key="00000000")

    async def work() -> None:
        for _ in range(4):
            await shares.grant(greedy, GRANT_MAX)
        then = clock.now
        assert await shares.grant(other, GRANT_MAX) == GRANT_MAX
        assert await shares.grant(same_address, GRANT_MAX) == GRANT_MAX, "another key is another share"
        assert clock.now == then
        assert [one.address for one in shares.loudest()] == ["10.0.0.1"]

    run(work())


def test_guests_of_one_share_have_it_in_turn(named: list[str], clock: Clock) -> None:
    shares = shares_of(named, clock, share=1_000)
    mine = share(shares)
    got = [0, 0]

    async def guest(number: int, wanted: int) -> None:
        while clock.now < 20 * SECOND:
            got[number] += await shares.grant(mine, wanted)

    async def work() -> None:
        await asyncio.gather(guest(0, GRANT_MAX), guest(1, GRANT_MAX))
        assert abs(got[0] - got[1]) <= 2 * GRANT_MAX

    run(work())


def test_all_together_have_no_more_than_the_total_and_nobody_is_blamed_for_it(named: list[str], clock: Clock) -> None:
    shares = shares_of(named, clock, share=2_000, total=3_000)
    some = [share(shares, f"10.0.0.{number}") for number in range(1, 5)]

    async def guest(mine: GuestShare) -> int:
        return await shares.grant(mine, 500) + await shares.grant(mine, 500)

    async def work() -> None:
        given = sum(await asyncio.gather(*[guest(mine) for mine in some]))
        assert given <= 1_500 + 3_000 * clock.now // SECOND + 64
        assert named == [], "each was within its share"

    run(work())


def test_whoever_waits_for_too_long_is_refused(named: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_shares, "_PATIENCE_S", 0.01)
    shares = GuestShares(GuestTable(share=1), lambda one: named.append(str(one)))
    mine = share(shares)

    async def work() -> None:
        assert await shares.grant(mine, GRANT_MAX) == GRANT_MAX
        assert await shares.grant(mine, GRANT_MAX) == 0
        assert (mine.refused, mine.throttled, len(named)) == (1, 1, 1)

    run(work())


def test_what_was_not_given_is_given_back_and_what_was_more_is_owed(named: list[str], clock: Clock) -> None:
    shares = shares_of(named, clock, share=1_024)
    mine = share(shares)

    async def work() -> None:
        granted = await shares.grant(mine, GRANT_MAX)
        shares.settle(mine, granted, 24)
        assert await shares.grant(mine, GRANT_MAX) == 1_000
        shares.settle(mine, 1_000, 5_096)
        assert mine.served == 24 + 5_096
        await shares.grant(mine, 1)
        assert clock.now >= 4 * SECOND * 999 // 1_000

    run(work())


def test_places_are_bounded_for_the_door_and_for_an_address(named: list[str], clock: Clock) -> None:
    shares = shares_of(named, clock, most=6)
    with ExitStack() as here:
        first = [here.enter_context(shares.visiting("10.0.0.1", key)) for key in (KEY, "0", "1")]
        assert [guest.number if guest else None for guest in first] == [0, 1, None], "a third, whatever the key"
        others = [here.enter_context(shares.visiting(f"10.0.0.{number}", KEY)) for number in range(2, 7)]
        assert [guest.number if guest else None for guest in others] == [2, 3, 4, 5, None]
        assert (shares.present, shares.turned_away, len(named)) == (6, 2, 2)
    assert shares.present == 0
    with shares.visiting("10.0.0.1", KEY) as again:
        assert again is not None
        assert again.number == 0


def test_memory_is_bounded_and_a_share_outlives_its_guests(
    named: list[str], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_shares, "SHARES_MAX", 4)
    shares = shares_of(named, clock, share=1_024)

    async def work() -> None:
        mine = share(shares)
        await shares.grant(mine, GRANT_MAX)
        assert share(shares) is mine, "coming back makes nobody new"
        with shares.visiting("10.9.9.9", KEY) as stays:
            for number in range(50):
                share(shares, f"10.0.1.{number}")
            assert shares.remembered == 4
            assert stays is not None
            assert share(shares, "10.9.9.9") is stays.share, "who is here is not forgotten"
        for number in range(LOUDEST + 5):
            share(shares, f"10.0.2.{number}").throttled = number
        assert len(shares.loudest()) <= LOUDEST

    run(work())
