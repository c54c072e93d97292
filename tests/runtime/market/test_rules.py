"""Rules between the keys: counts, groups, and what may be injected."""

import pytest
from tests.runtime.market.markets import fault_of, faults_of, market_of

from isocast.ring.settings import StartPolicy
from isocast.runtime.market.model import Reveal
from isocast.runtime.market.rules import slowest_pair
from isocast.terms.instants import SECOND


def test_a_ring_needs_two_and_somebody_who_forms_it() -> None:
    changes: dict[str, object] = {f"nodes.{name}": None for name in ("c", "x", "y")}
    assert fault_of(changes) == (
        "nodes",
        'a market needs at least 1 reformation-server, not 0: add a table with role = "reformation-server"',
    )


def test_nobody_is_missed_while_a_role_is_unknown() -> None:
    assert [key for key, _ in faults_of({"nodes.x.role": "reformer", "nodes.y": None})] == ["nodes.x.role"]


@pytest.mark.parametrize("role, most", [("primary-receiver", 256), ("reformation-server", 16)])
def test_nobody_has_too_many(role: str, most: int) -> None:
    changes = {f"nodes.n{number}": {"role": role} for number in range(most)}
    key, rule = fault_of(changes)
    assert key == "nodes"
    assert rule.startswith(f"at most {most} nodes are a {role}, not ")


def test_a_secondary_ring_has_a_size_too() -> None:
    changes = {f"nodes.n{number}": {"role": "secondary-receiver", "parent": "a"} for number in range(255)}
    assert fault_of(changes) == ("nodes.a", "its secondary ring has 257 members: at most 256")


@pytest.mark.parametrize(
    "changes, key, rule",
    [
        (
            {"network.groups": "10.0.0.0"},
            "groups",
            "data of stripe 0 would be 10.0.0.0, which is not a usable group: groups are from",
        ),
        ({"network.groups": "224.0.0.9"}, "groups", "data of stripe 0 would be 224.0.0.9, which is not a usable group"),
        (
            {"network.lines": "239.255.255.254"},
            "lines",
            "the line of b would be 240.0.0.0, which is not a usable group",
        ),
        (
            {"network.lines": "239.255.77.0"},
            "lines",
            "the line of a would be 239.255.77.1, which is already control of stripe 0",
        ),
        (
            {"network.repairs": "239.255.78.2"},
            "repairs",
            "the line of archive would be 239.255.78.3, which is already the line of c",
        ),
        ({"network.lines": "255.255.255.255"}, "lines", "the line of a would be 0.0.0.0, which is not a usable group"),
    ],
)
def test_every_group_is_a_group_of_its_own(changes: dict[str, object], key: str, rule: str) -> None:
    got, text = fault_of(changes)
    assert got == f"network.{key}"
    assert text.startswith(rule)


def test_without_multicast_groups_do_not_matter() -> None:
    market_of({"network.mode": "fanout", "network.groups": "10.0.0.0"})


def test_a_node_without_a_line_needs_no_group() -> None:
    market_of({"network.lines": "239.255.77.254", "nodes.b.number": 300, "nodes.b.line": False} | QUIET)


QUIET = {"nodes.bank.lines": ["a2", "c"], "nodes.archive.lines": ["a"]}


# ---- impairment


def test_nothing_is_injected_on_a_real_network() -> None:
    names = ["a", "b", "c", "a2", "floor", "broker", "x", "y", "archive", "bank"]
    real: dict[str, object] = {f"nodes.{name}.address": f"10.0.0.{n}" for n, name in enumerate(names, 1)}
    key, rule = fault_of(real | {"impairment.enabled": True})
    assert key == "impairment.enabled"
    assert rule == "loss and delay are injected on loopback only, and a has the address 10.0.0.1: set it to false"
    market_of(real | {"impairment.enabled": False, "impairment.loss": 0.5})


FAR: dict[str, object] = {"impairment.enabled": True, "nodes.a.city": "London", "nodes.c.city": "Sydney"}


def test_a_delay_that_makes_every_token_late_is_refused() -> None:
    key, rule = fault_of(FAR)
    assert key == "timing.detect"
    assert rule.startswith("δ_N = 3ms must be more than the 84.9")
    assert "that impairment.delay puts between a and c" in rule
    market_of(FAR | {"timing.profile": "world"})
    market_of(FAR | {"impairment.delay": "none"})


def test_the_slowest_pair_is_one_of_the_core() -> None:
    market = market_of({"nodes.floor.city": "London", "nodes.b.city": "Paris", "nodes.bank.city": "Sydney"})
    delay, sender, listener = slowest_pair(market)
    assert (sender, listener) == ("floor", "b")
    assert 1_700_000 < delay < 1_750_000


def test_a_ring_starts_with_a_majority_unless_the_market_says_otherwise() -> None:
    rules = market_of({}).ring_settings()
    assert (rules.policy, rules.patience_ns) == (StartPolicy.MAJORITY, 2 * rules.timing.reformation_ns)
    available = market_of({"ring.policy": "availability", "ring.start_wait": "5s"}).ring_settings()
    assert (available.policy, available.patience_ns) == (StartPolicy.AVAILABILITY, 5 * SECOND)


@pytest.mark.parametrize("gate", ["timed", "next", "total"])
def test_availability_goes_with_the_gate_that_knows_what_a_majority_holds(gate: str) -> None:
    key, rule = fault_of({"ring.policy": "availability", "timing.gate": gate})
    assert key == "ring.policy"
    assert 'gate = "majority" only' in rule


def test_nobody_waits_no_time_for_a_majority() -> None:
    assert fault_of({"ring.policy": "availability", "ring.start_wait": "0s"})[0] == "ring.start_wait"


# ---- keys that sources disclose


def test_sources_disclose_their_keys_where_the_market_says_so() -> None:
    plain, chain = market_of({}), market_of({"reveal": "chain"})
    assert (plain.reveal, plain.timing.reveal_tokens, chain.timing.reveal_tokens) == (Reveal.SEAL, 0, 2)
    added = chain.timing.release_delay_ns - plain.timing.release_delay_ns
    assert added == chain.timing.reveal_ns == 2 * plain.timing.token_period_ns
    assert market_of({"reveal": "chain", "timing.reveal_tokens": 5}).timing.reveal_tokens == 5


@pytest.mark.parametrize(
    "changes, key, rule",
    [
        ({"seal": False}, "reveal", "needs seal = true"),
        ({"timing.gate": "timed"}, "reveal", 'needs timing.gate = "majority"'),
        ({"ring.policy": "availability"}, "reveal", 'needs ring.policy = "majority"'),
        ({"security.receipts": "never"}, "security.receipts", "whoever forges receipts would see the keys early"),
    ],
)
def test_disclosed_keys_need_seals_and_receipts_that_nobody_forges(
    changes: dict[str, object], key: str, rule: str
) -> None:
    got, text = fault_of({"reveal": "chain"} | changes)
    assert got == key
    assert rule in text


def test_a_term_of_disclosed_keys_changes_nothing_without_them() -> None:
    assert market_of({"timing.reveal_tokens": 7}).timing == market_of({}).timing


def test_receipts_are_signed_where_they_let_a_source_disclose() -> None:
    """Whatever it costs: who forges receipts of a majority would read early."""
    fast: dict[str, object] = {"timing.detect": "2ms", "timing.process": "10us", "timing.retries_max": 1}
    many = {f"nodes.n{number}": {"role": "primary-receiver"} for number in range(40)}
    assert not market_of(fast | many).signs_receipts(0)
    assert market_of(fast | many | {"reveal": "chain"}).signs_receipts(0)
    assert not market_of({"reveal": "chain", "security.signatures": False}).signs_receipts(0)
