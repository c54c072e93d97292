"""Warnings: what a sound file may still regret."""

import pytest
from tests.runtime.market.markets import reading_of

NAMES = ["a", "b", "c", "a2", "floor", "broker", "x", "y", "archive", "bank"]
REAL: dict[str, object] = {f"nodes.{name}.address": f"10.0.0.{n}" for n, name in enumerate(NAMES, 1)}
REAL |= {f"nodes.{name}.number": n for n, name in enumerate(NAMES, 1)} | {"durability": "power"}


def warnings(changes: dict[str, object]) -> tuple[str, ...]:
    reading = reading_of(changes)
    assert reading.market is not None, reading.faults
    return reading.warnings


@pytest.mark.parametrize(
    "changes, warning",
    [
        ({"nodes.c": None}, "nodes: with 2 primary receivers a majority is all of them"),
        ({"nodes.y": None}, "nodes: without its only reformation server"),
        ({"nodes.floor": None, "nodes.broker": None}, "nodes: there is no source"),
        (
            {"ring.stripes": [0, 4], "nodes.floor.stripes": [0], "nodes.broker.stripes": [0]},
            "ring.stripes: no source publishes in stripe 4",
        ),
        ({"nodes.a2.backup": None}, "nodes.a2.backup: when a fails no other receiver answers it"),
        ({"nodes.bank.lines": ["b"]}, "nodes.bank.lines: with a second line"),
        ({"nodes.archive.lines": ["b"]}, "nodes.archive.lines: with a second line"),
        ({"nodes.bank.retransmit": []}, "nodes.bank.retransmit: grade complete needs a retransmit server"),
        ({"seal": False}, "seal: payloads travel unencrypted"),
        ({"timing.gate": "timed"}, "timing.gate: under timed a partition"),
    ],
)
def test_advice(changes: dict[str, object], warning: str) -> None:
    (found,) = warnings(changes)
    assert found.startswith(warning)


def test_the_latest_need_no_repairs() -> None:
    assert warnings({"nodes.bank.retransmit": [], "nodes.bank.grade": "latest"}) == ()


def test_places_that_are_too_far_apart() -> None:
    far: dict[str, object] = dict.fromkeys((f"nodes.{name}.city" for name in NAMES), "London")
    far["nodes.c.city"] = "Sydney"
    (found,) = warnings(far)
    assert found.startswith("timing.detect: light needs 85ms from a to c, and δ_N is 3ms")
    far |= {"nodes.c.city": "London", "nodes.a2.city": "Paris", "timing.secondary_detect": "1ms"}
    assert [text.split(", and")[0] for text in warnings(far)] == [
        "timing.secondary_detect: light needs 1.7ms from a2 to a",
        "timing.secondary_detect: light needs 1.7ms from a2 to b",
    ]


def test_places_that_are_not_known() -> None:
    some: dict[str, object] = {f"nodes.{name}.city": "London" for name in NAMES if name not in ("x", "y")}
    assert warnings(some) == ("nodes.x.city: without a city its delays, and those of 1 others count as 0",)
    assert warnings(some | {"nodes.y.city": "London"}) == ("nodes.x.city: without a city its delays count as 0",)


# ---- on a real network


def test_a_real_market_may_be_without_a_warning() -> None:
    assert warnings(REAL) == ()


@pytest.mark.parametrize(
    "changes, warning",
    [
        ({"durability": "process"}, "durability: process survives kill -9 of any process, not a power cut"),
        ({"network.mtu": 9000}, "network.mtu: every link between the nodes must carry 9000 bytes"),
        ({"network.source_specific": True}, "network.groups: routers treat 232.x.x.x as source-specific"),
        ({"nodes.x.number": None}, "nodes.x.number: x take the lowest free number"),
    ],
)
def test_advice_for_a_real_market(changes: dict[str, object], warning: str) -> None:
    mapping = {key: value for key, value in (REAL | changes).items() if value is not None}
    (found,) = warnings(mapping)
    assert found.startswith(warning)


def test_several_places_need_routers() -> None:
    cities: dict[str, object] = dict.fromkeys((f"nodes.{name}.city" for name in NAMES), "London")
    cities["nodes.c.city"] = "Paris"
    assert [text.split(":")[0] for text in warnings(REAL | cities)] == ["network.ttl"]
    assert warnings(REAL | cities | {"network.ttl": 9}) == ()
    assert warnings(REAL | cities | {"network.mode": "fanout"}) == ()


def test_linux_allows_ten_senders_of_a_source_specific_group() -> None:
    more: dict[str, object] = {
        f"nodes.s{n}": {"role": "primary-source", "number": 100 + n, "address": f"10.0.1.{n}"} for n in range(1, 11)
    }
    ranges = {"network.groups": "232.1.1.0", "network.lines": "232.1.2.0", "network.repairs": "232.1.3.0"}
    (found,) = warnings(REAL | more | ranges | {"network.source_specific": True})
    assert found.startswith("network.source_specific: a group has 11 senders, and Linux allows 10 of them")
    more.pop("nodes.s1")
    assert warnings(REAL | more | ranges | {"network.source_specific": True}) == ()
