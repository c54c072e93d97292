"""The phases of a day by instants in the sequence: at the same token everywhere, also where nobody writes."""

import pytest
from tests.floor.cases import BUY, SELL, SYMBOL, order
from tests.floor.rings import CODE, Ring

from isocast.floor.arbiter import PublishWake
from isocast.floor.codec import CHANGES_MAX, decode_event, encode_event
from isocast.floor.events import Directory, Expired, Phase, Schedule, Status, Trade, Wake
from isocast.floor.following import FloorFollower
from isocast.floor.machine import Floor
from isocast.floor.snapshot import floor_of, rows_of
from isocast.floor.state import state_hash, state_lines
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError

DAY = Schedule(((100, Phase.PRE_OPEN), (200, Phase.OPEN), (300, Phase.CLOSING), (400, Phase.CLOSED)))


def opened() -> Floor:
    floor = Floor()
    floor.step(1, 10, [Directory(SYMBOL), Directory("CAST"), DAY])
    return floor


def phase(floor: Floor, symbol: str = SYMBOL) -> Phase:
    return floor.symbols[symbol].phase


def test_a_day_goes_through_its_phases_and_its_auctions() -> None:
    floor = opened()
    assert phase(floor) is Phase.CLOSED
    floor.step(2, 100, [order(1, BUY, 5, 101), order(2, SELL, 3, 99), order(3, BUY, 1, 90, is_day=True)])
    assert phase(floor) is phase(floor, "CAST") is Phase.PRE_OPEN
    told = floor.step(3, 205, [Wake()])
    assert [(one.price, one.quantity, one.is_auction) for one in told if isinstance(one, Trade)] == [(101, 3, True)]
    assert phase(floor) is Phase.OPEN
    floor.step(4, 300, [order(4, SELL, 2, 100)])
    assert phase(floor) is Phase.CLOSING
    told = floor.step(5, 999, [Wake()])
    assert [one.is_auction for one in told if isinstance(one, Trade)] == [True], "the closing auction"
    assert Expired(3, 1) in told
    assert phase(floor) is Phase.CLOSED
    assert floor.schedule == ()
    assert floor.next_due is None


def test_what_is_due_already_happens_at_once_one_after_the_other() -> None:
    floor = Floor()
    floor.step(1, 350, [Directory(SYMBOL), DAY])
    assert phase(floor) is Phase.CLOSING
    floor.step(2, 360, [Schedule(((500, Phase.CLOSED),))])
    assert floor.schedule == ((500, Phase.CLOSED),), "a schedule takes the place of the one before"
    assert phase(floor) is Phase.CLOSING


def test_a_halted_symbol_waits_for_a_status_and_a_status_holds_until_the_next_change() -> None:
    floor = opened()
    floor.step(2, 150, [Status(SYMBOL, Phase.HALTED), Status("CAST", Phase.OPEN)])
    assert phase(floor, "CAST") is Phase.OPEN
    floor.step(3, 300, [Wake()])
    assert (phase(floor), phase(floor, "CAST")) == (Phase.HALTED, Phase.CLOSING)


def test_a_schedule_is_part_of_the_state_and_of_snapshots_and_floors_without_one_are_as_before() -> None:
    floor, plain = opened(), Floor()
    plain.step(1, 10, [Directory(SYMBOL), Directory("CAST")])
    assert state_hash(floor) != state_hash(plain)
    (head, *rest), (plain_head, *plain_rest) = state_lines(floor), state_lines(plain)
    assert (head.partition(" schedule ")[0], rest) == (plain_head, plain_rest)
    assert " schedule 100 pre-open " in head
    assert "schedule" not in rows_of(plain)
    again = floor_of(rows_of(floor))
    assert state_hash(again) == state_hash(floor)
    assert again.step(2, 400, [Wake()]) == floor.step(2, 400, [Wake()])


def test_bytes_of_a_schedule_have_one_spelling() -> None:
    for event in (DAY, Wake(), Schedule(())):
        assert decode_event(encode_event(event)) == event
    backwards = Schedule(DAY.changes[::-1])
    long = Schedule(tuple([(at, Phase.OPEN) for at in range(CHANGES_MAX + 1)]))
    for wrong in (backwards, long, Schedule(((1, Phase.HALTED),)), Schedule(((1, Phase.OPEN), (1, Phase.CLOSED)))):
        with pytest.raises(LocalProtocolError):
            encode_event(wrong)
    raw = encode_event(DAY)
    swapped = raw[:2] + raw[11:20] + raw[2:11] + raw[20:]
    for hostile in (swapped, raw[:-1], raw + b"\0", bytes([11, 1]) + bytes(8) + b"\4", b"\x0c\0"):
        with pytest.raises(RemoteProtocolError):
            decode_event(hostile)


# ---- nobody writes


def test_the_floor_is_woken_at_its_instants_by_the_owner_of_the_token_that_reaches_them() -> None:
    """Tokens come every ten; nobody but arbiters writes to the floor after the first."""
    ring = Ring()
    ring.issue(Directory(SYMBOL), DAY, order(1, BUY, 5, 101, account=1))
    ring.idle(50)
    assert all(site.arbiter.floor.floor.symbols[SYMBOL].phase is Phase.CLOSED for site in ring.sites.values())
    wakes = [one for site in ring.sites.values() for one in site.effects if isinstance(one, PublishWake)]
    assert len(wakes) == len({one.key for one in wakes}) == 4, "one for each change"
    follower = FloorFollower(CODE)
    for event in ring.log:
        follower.follow(event.token, event.instant, event.messages)
    assert state_hash(follower.floor) == state_hash(ring.sites[1].arbiter.floor.floor), "equal for whoever has the log"
    before = follower.steps
    ring.idle(30)
    assert ring.sites[2].arbiter.floor.steps == before, "then the floor sleeps"


@pytest.mark.parametrize("lost", [1, 2, 3, 4])
def test_a_lost_owner_wakes_nobody_and_others_do(lost: int) -> None:
    ring = Ring()
    ring.issue(Directory(SYMBOL), Schedule(((100, Phase.OPEN),)))
    ring.idle(7)
    ring.crash(lost)
    ring.reform(*[site for site in (1, 2, 3, 4) if site != lost])
    ring.idle(20)
    phases = {site.arbiter.floor.floor.symbols[SYMBOL].phase for site in ring.sites.values() if site.is_up}
    assert phases == {Phase.OPEN}
    assert not ring.alarms()
