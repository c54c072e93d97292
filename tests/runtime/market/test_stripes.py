"""One table of the file, a process in each stripe: names, places, groups, and who belongs to whom."""

from pathlib import Path

import pytest
from tests.runtime.market.markets import faults_of, market_of
from tests.runtime.worlds import SMALL, market_file

from isocast.runtime.market.file import load_market
from isocast.runtime.market.key_files import key_names, load_keys, needed_by
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import Label, source_id

TWO = {"ring.stripes": [0, 1]}
MARKET = market_of(TWO)


def names(plans: object) -> list[str]:
    return [plan.name for plan in plans]  # type: ignore[attr-defined]


def test_every_node_has_a_process_in_each_stripe_and_the_first_keeps_its_name() -> None:
    plain = ["a", "b", "c", "a2", "floor", "broker", "x", "y", "archive", "bank"]
    assert names(MARKET.nodes) == [*plain, *[f"{name}.s1" for name in plain]]
    assert [plan.stripe for plan in MARKET.nodes] == [0] * 10 + [1] * 10
    assert names(MARKET.processes_of("a")) == ["a", "a.s1"]
    assert MARKET.node("a.s1").origin == MARKET.node("a").origin == "a"
    assert MARKET.node("a.s1").node == MARKET.node("a").node, "the same site in another ring"
    assert MARKET.processes_of("a.s1") == ()


def test_a_single_stripe_of_any_number_keeps_the_plain_names() -> None:
    market = market_of({"ring.stripes": [7]})
    assert "a" in market.by_name
    assert market.node("a").stripe == 7


def test_relations_stay_within_a_stripe() -> None:
    bank, below = MARKET.node("bank.s1"), MARKET.node("a2.s1")
    assert (bank.lines, bank.retransmit) == (("a2.s1", "b.s1"), ("archive.s1",))
    assert (below.parent, below.backup) == ("a.s1", "b.s1")
    assert names(MARKET.children("a.s1")) == ["a2.s1"]
    assert names(MARKET.line_listeners("b.s1")) == ["archive.s1", "bank.s1"]
    assert names(MARKET.data_members(1)) == ["a.s1", "b.s1", "c.s1", "a2.s1"]
    assert names(MARKET.control_members(0)) == ["a", "b", "c", "a2", "floor", "x", "y"]


def test_no_two_processes_share_a_port_of_an_address_or_a_group() -> None:
    assert len({(plan.address, plan.port) for plan in MARKET.nodes}) == len(MARKET.nodes)
    lines = [MARKET.line_group(plan.name) for plan in MARKET.nodes if plan.line]
    groups = [group for stripe in MARKET.stripes for group in (MARKET.data_group(stripe), MARKET.control_group(stripe))]
    assert len({*lines, *groups}) == len(lines) + len(groups)
    assert MARKET.line_group("a") == "239.255.78.1"
    assert MARKET.line_group("a.s1") == "239.255.82.1"


def test_on_loopback_stripes_have_addresses_of_their_own() -> None:
    assert (MARKET.node("a").address, MARKET.node("a.s1").address) == ("127.1.0.1", "127.5.0.1")
    assert MARKET.node("bank.s1").address == "127.8.0.2"


def test_at_one_address_stripes_have_blocks_of_ports() -> None:
    market = market_of({**TWO, "nodes.a.address": "127.20.0.1", "network.stripe_ports": 30})
    plan = market.node("a.s1")
    assert (plan.address, plan.port, plan.http_port, plan.tcp_port) == ("127.20.0.1", 7740, 7810, 7820)
    assert market.node("x.s1").tcp_port == 0, "no door, no port"


def test_a_stripe_may_have_a_machine_of_its_own() -> None:
    market = market_of({**TWO, "nodes.a.s1.address": "127.30.0.1", "nodes.a.s1.http_port": 9000})
    plan = market.node("a.s1")
    assert (plan.address, plan.port, plan.http_port, plan.tcp_port) == ("127.30.0.1", 7710, 9000, 7790)
    assert market.node("a").address == "127.1.0.1"


@pytest.mark.parametrize(
    "changes, key, rule",
    [
        ({"ring.stripes": [1, 0]}, "ring.stripes", "must be ascending"),
        ({**TWO, "nodes.a.stripes": [2]}, "nodes.a.stripes", "the core has no stripe 2: ring.stripes has 0, 1"),
        (
            {**TWO, "nodes.c.stripes": [0], "nodes.b.stripes": [0]},
            "nodes",
            "stripe 1 needs at least 2 primary-receivers",
        ),
        ({**TWO, "nodes.bank.lines": ["c"], "nodes.c.stripes": [0]}, "nodes.bank.lines", "has no receiver in stripe 1"),
        ({**TWO, "nodes.a.s2.address": "127.30.0.1"}, "nodes.a.s2.address", "no process in stripe 2"),
        ({**TWO, "nodes.a.s1.role": "customer"}, "nodes.a.s1.role", "unknown key"),
        ({**TWO, "nodes.a.s1.address": "224.0.0.9"}, "nodes.a.s1.address", "is a group"),
        ({"ring.stripes": [0, 600]}, "nodes.a.port", "would be 67710 in stripe 600"),
        (
            {**TWO, "nodes.a.address": "127.7.7.7", "nodes.b.address": "127.7.7.7", "nodes.b.port": 7810},
            "nodes.b.port",
            "UDP port 7810 of 127.7.7.7 is already port of a in stripe 1",
        ),
        ({**TWO, "network.stripe_groups": 1}, "network.lines", "which is already the line of b"),
    ],
)
def test_faults(changes: dict[str, object], key: str, rule: str) -> None:
    assert [text for name, text in faults_of(changes) if name == key and rule in text]


def test_a_share_is_a_market_of_one_stripe_with_ids_of_its_own() -> None:
    share = MARKET.of_stripe(1)
    assert share is MARKET.of_stripe(1)
    assert share.of_stripe(1) is share
    assert names(share.receivers) == ["a.s1", "b.s1", "c.s1", "a2.s1"]
    assert share.universe == MARKET.universe == (1, 2, 3)
    assert share.name_of(1) == "a.s1"
    assert MARKET.of_stripe(0).name_of(1) == "a"
    assert (share.stripes, share.all_stripes) == ((1,), (0, 1))


def test_a_smaller_ring_in_one_stripe_does_not_shorten_the_times_of_all() -> None:
    market = market_of({**TWO, "nodes.c.stripes": [0], "timing.gate": "total"})
    assert market.of_stripe(1).universe == (1, 2)
    assert market.timing.ring_size == 3
    assert market.of_stripe(1).timing == market.of_stripe(0).timing


def test_a_floor_has_one_key_for_all_its_stripes(tmp_path: Path) -> None:
    market = load_market(market_file(tmp_path, SMALL, settings={"ring": {"stripes": [0, 1]}}))
    assert key_names(market)[:3] == ("core.key", "edge.key", "source-floor.key")
    needed = ("core.key", "source-floor.key", "identity-floor.key", "roster.bin")
    assert needed_by(market, market.node("floor.s1")) == needed
    keys = [load_keys(market.of_stripe(stripe), market.node(name)) for stripe, name in ((0, "a"), (1, "a.s1"))]
    assert keys[0].sources[1] == keys[1].sources[1]
    (public,) = {held.identity.public for held in keys if held.identity is not None}
    for held in keys:
        assert held.roster is not None
        assert [held.roster.public_of(1, stripe) for stripe in (0, 1, 2)] == [public, public, None]


def test_what_one_stripe_sealed_another_cannot_open(tmp_path: Path) -> None:
    market = load_market(market_file(tmp_path, SMALL, settings={"ring": {"stripes": [0, 1]}}))
    keys = load_keys(market, market.node("floor"))
    label = Label(source_id(1, 1), 1)
    sealed = [keys.sealer(1).seal(stripe, label, b"x" * 48) for stripe in (0, 1)]
    assert sealed[0][48:] != sealed[1][48:], "the same label under another key"
    opener = load_keys(market, market.node("a")).opener()
    assert opener.open(1, label, sealed[1]).payload == b"x" * 48
    with pytest.raises(RemoteProtocolError):
        opener.open(1, label, sealed[0])
