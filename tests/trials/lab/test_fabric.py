"""Frames come out when they are due, in order, at the ports they are for."""

import pytest

from isocast.trials.lab import fabric as fabric_module
from isocast.trials.lab.fabric import Fabric, site_mac
from isocast.trials.lab.world import LinkImpairment

BROADCAST = b"\xff" * 6


def frame(to: bytes, text: bytes, sender: int = 0) -> bytes:
    return to + site_mac(sender) + b"\x08\x00" + text


def world(delays: dict[tuple[int, int], int], ports: int = 3) -> Fabric:
    return Fabric({pair: LinkImpairment(delay_ns=delay) for pair, delay in delays.items()}, ports, seed=1)


def drain(fabric: Fabric, now: int) -> list[tuple[int, int, bytes]]:
    out = []
    while (departure := fabric.leave(now)) is not None:
        due, _, port, data = departure
        out.append((due, port, data[14:]))
    return out


def test_a_group_reaches_each_site_after_that_sites_delay() -> None:
    fabric = world({(0, 1): 35, (0, 2): 84})
    fabric.enter(frame(BROADCAST, b"x"), 0, now=100)
    assert fabric.next_departure() == 135
    assert drain(fabric, 134) == []
    assert drain(fabric, 135) == [(135, 1, b"x")]
    assert drain(fabric, 500) == [(184, 2, b"x")]
    assert fabric.next_departure() is None


def test_nothing_leaves_before_its_instant() -> None:
    fabric = world({(0, 1): 35})
    fabric.enter(frame(site_mac(1), b"x"), 0, now=0)
    assert fabric.leave(34) is None
    assert len(fabric) == 1


def test_frames_of_equal_instants_leave_in_the_order_in_which_they_came() -> None:
    fabric = world({(0, 1): 10, (2, 1): 10})
    for number in range(20):
        fabric.enter(frame(site_mac(1), bytes([number]), sender=2 * (number % 2)), 2 * (number % 2), now=0)
    assert [data[0] for _, _, data in drain(fabric, 10)] == list(range(20))


def test_a_cut_takes_what_enters_from_then_on_and_lets_the_rest_arrive() -> None:
    fabric = world({(0, 1): 50, (1, 0): 50})
    fabric.enter(frame(site_mac(1), b"before"), 0, now=0)
    for link in fabric.select([(0, 1)]):
        link.cut = True
    fabric.enter(frame(site_mac(1), b"after"), 0, now=1)
    fabric.enter(frame(site_mac(0), b"back", sender=1), 1, now=1)
    assert [data for _, _, data in drain(fabric, 1000)] == [b"before", b"back"]
    assert fabric.frames_cut == 1


def test_what_is_lost_at_one_site_arrives_at_another() -> None:
    fabric = Fabric({(0, 1): LinkImpairment(loss=1.0), (0, 2): LinkImpairment()}, 3, seed=1)
    fabric.enter(frame(BROADCAST, b"x"), 0, now=0)
    assert drain(fabric, 0) == [(0, 2, b"x")]
    assert (fabric.frames_lost, fabric.frames_in) == (1, 1)


def test_what_is_no_frame_is_counted_and_goes_nowhere() -> None:
    fabric = world({})
    fabric.enter(b"short", 0, now=0)
    assert (len(fabric), fabric.frames_ignored) == (0, 1)


def test_what_is_on_its_way_is_bounded_and_the_rest_is_counted_as_the_labs_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fabric_module, "_IN_FLIGHT_MAX", 5)
    fabric = world({(0, 1): 1000})
    for _ in range(8):
        fabric.enter(frame(site_mac(1), b"x"), 0, now=0)
    assert (len(fabric), fabric.frames_refused, fabric.frames_lost) == (5, 3, 0)


def test_another_site_leaves_the_draws_of_a_link_as_they_are() -> None:
    def losses(ports: int) -> list[bool]:
        pairs = {(a, b): LinkImpairment(loss=0.5) for a in range(ports) for b in range(ports) if a != b}
        fabric = Fabric(pairs, ports, seed=7)
        seen = []
        for _ in range(50):
            fabric.enter(frame(BROADCAST, b"x"), 0, now=0)
            seen.append(any(port == 1 for _, port, _ in drain(fabric, 0)))
        return seen

    assert losses(2) == losses(4)
