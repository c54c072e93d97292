"""Nodes: numbers, addresses, ports, places, and who may belong to whom."""

import pytest
from tests.runtime.market.markets import fault_of, faults_of, market_of

# ---- names and roles


@pytest.mark.parametrize("name", ["London", "1st", "a_b", "a b", "x" * 33, "", "ä", "a/b", "/"])
def test_a_name_is_good_for_files_and_units(name: str) -> None:
    key, rule = fault_of({f"nodes.{name}": {"role": "customer"}})
    assert key == f"nodes.{name}"
    assert rule.startswith("a name has small letters, digits and hyphens")


def test_a_node_needs_a_role() -> None:
    key, rule = fault_of({"nodes.new": {"city": "London"}})
    assert key == "nodes.new.role"
    assert rule.startswith('must be given: one of "primary-receiver", "secondary-receiver"')


def test_whoever_names_a_node_without_a_role_is_not_blamed() -> None:
    assert [key for key, _ in faults_of({"nodes.a.role": "reciever"})] == ["nodes.a.role"]


@pytest.mark.parametrize(
    "node, key, value",
    [
        ("a", "parent", "b"),
        ("a", "lines", ["b"]),
        ("floor", "backup", "a"),
        ("bank", "line", True),
        ("x", "tcp_port", 5),
        ("archive", "grade", "latest"),
        ("archive", "retransmit", ["archive"]),
    ],
)
def test_a_key_of_another_role_is_refused(node: str, key: str, value: object) -> None:
    got, rule = fault_of({f"nodes.{node}.{key}": value})
    assert got == f"nodes.{node}.{key}"
    assert rule.startswith("is not for a ")
    assert rule.endswith(": leave it out")


# ---- numbers


def test_numbers_are_the_lowest_that_nobody_wrote_down() -> None:
    market = market_of({"nodes.b.number": 1, "nodes.x.number": 2, "nodes.floor.number": 9})
    numbers = {plan.name: plan.number for plan in market.nodes}
    assert (numbers["a"], numbers["b"], numbers["c"], numbers["a2"]) == (2, 1, 3, 4)
    assert (numbers["x"], numbers["y"]) == (2, 1)
    assert (numbers["floor"], numbers["broker"]) == (9, 1)
    assert (numbers["archive"], numbers["bank"]) == (1, 2)


def test_a_number_is_one_nodes_of_a_kind() -> None:
    got = fault_of({"nodes.a.number": 7, "nodes.a2.number": 7})
    assert got == ("nodes.a2.number", "7 is already the number of receiver a")
    market_of({"nodes.a.number": 7, "nodes.floor.number": 7, "nodes.x.number": 7, "nodes.bank.number": 7})


# ---- addresses


def test_on_loopback_everybody_has_an_address_of_his_own() -> None:
    market = market_of({"nodes.a.number": 513})
    addresses = {plan.name: plan.address for plan in market.nodes}
    assert addresses["a"] == "127.1.2.1"
    assert (addresses["floor"], addresses["x"], addresses["bank"]) == ("127.2.0.1", "127.3.0.1", "127.4.0.2")
    assert len(set(addresses.values())) == len(addresses)
    assert market.on_loopback


REAL = {
    f"nodes.{name}.address": f"10.0.0.{n}"
    for n, name in enumerate(["a", "b", "c", "a2", "floor", "broker", "x", "y", "archive", "bank"], 1)
}


def test_on_a_network_everybody_says_where_he_is() -> None:
    assert not market_of(REAL).on_loopback
    some = {key: value for key, value in REAL.items() if key != "nodes.bank.address"}
    assert fault_of(some) == ("nodes.bank.address", "is missing: a is not on loopback either")


@pytest.mark.parametrize(
    "address, rule",
    [
        ("127.0.0.1", "127.0.0.1 is a loopback address, which a cannot reach"),
        ("239.1.1.1", "239.1.1.1 is a group: give the address of the machine"),
        ("0.0.0.0", "0.0.0.0 means every interface: give the address that other nodes reach"),  # noqa: S104  # refused
    ],
)
def test_an_address_is_one_that_others_reach(address: str, rule: str) -> None:
    assert fault_of(REAL | {"nodes.bank.address": address}) == ("nodes.bank.address", rule)


# ---- ports


@pytest.mark.parametrize("port", [7710, 7711, 7713, 7707])
def test_blocks_of_ports_on_one_address_do_not_overlap(port: int) -> None:
    changes: dict[str, object] = {"nodes.b.address": "127.1.0.1", "nodes.b.port": port}
    key, rule = fault_of(changes | {"nodes.b.http_port": 1, "nodes.b.tcp_port": 2})
    assert key == "nodes.b.port"
    assert "of 127.1.0.1 is already port of a: choose another port or address" in rule


@pytest.mark.parametrize("port", [7706, 7714])
def test_blocks_of_ports_may_touch(port: int) -> None:
    changes: dict[str, object] = {"nodes.b.address": "127.1.0.1", "nodes.b.port": port}
    market_of(changes | {"nodes.b.http_port": 1, "nodes.b.tcp_port": 2})


def test_doors_and_status_pages_have_ports_of_their_own() -> None:
    assert fault_of({"nodes.a.http_port": 7790}) == (
        "nodes.a.tcp_port",
        "TCP port 7790 of 127.1.0.1 is already http_port of a: choose another port or address",
    )
    market_of({"nodes.a.http_port": 0, "nodes.a.tcp_port": 0})
    market_of({"nodes.a.http_port": 7710})


# ---- places


@pytest.mark.parametrize(
    "changes, key, rule",
    [
        ({"nodes.a.city": "Lodnon"}, "city", 'unknown city "Lodnon"; did you mean "London"?'),
        ({"nodes.a.city": "Qxyzq"}, "city", 'unknown city "Qxyzq"; give latitude and longitude beside it'),
        ({"nodes.a.latitude": 5}, "longitude", "must be given beside latitude"),
        ({"nodes.a.longitude": 5}, "latitude", "must be given beside longitude"),
    ],
)
def test_a_place_is_a_known_city_or_coordinates(changes: dict[str, object], key: str, rule: str) -> None:
    assert fault_of(changes) == (f"nodes.a.{key}", rule)


# ---- who belongs to whom


@pytest.mark.parametrize(
    "changes, key, rule",
    [
        ({"nodes.a2.parent": None}, "a2.parent", "must be given: the name of a receiver"),
        ({"nodes.broker.parent": None}, "broker.parent", "must be given: the name of a primary source"),
        ({"nodes.broker.parent": "flor"}, "broker.parent", 'there is no node "flor"; did you mean "floor"?'),
        ({"nodes.a2.parent": "a2"}, "a2.parent", "names the node itself"),
        ({"nodes.a2.parent": "x"}, "a2.parent", "must be a receiver; x is a reformation-server"),
        ({"nodes.broker.parent": "a"}, "broker.parent", "must be a primary source; a is a primary-receiver"),
        ({"nodes.a2.backup": "bank"}, "a2.backup", "must be a receiver; bank is a customer"),
        ({"nodes.a2.backup": "a2"}, "a2.backup", "names the node itself"),
        ({"nodes.a2.backup": "a"}, "a2.backup", "is the parent, a: name another receiver, or leave it out"),
        ({"nodes.bank.lines": None}, "bank.lines", "must be given: the names of receivers, two or more if possible"),
        ({"nodes.bank.lines": []}, "bank.lines", "must be given: the names of receivers, two or more if possible"),
        ({"nodes.bank.lines": ["a", "cc"]}, "bank.lines", 'there is no node "cc"'),
        ({"nodes.bank.lines": ["archive"]}, "bank.lines", "must be receivers; archive is a retransmit-server"),
        ({"nodes.b.line": False, "nodes.archive.lines": ["a"]}, "bank.lines", "b has no line: set nodes.b.line = true"),
        ({"nodes.bank.retransmit": ["a"]}, "bank.retransmit", "must be retransmit servers; a is a primary-receiver"),
        (
            {"nodes.floor.stripes": [1], "nodes.broker.stripes": [1]},
            "floor.stripes",
            "the core has no stripe 1: ring.stripes has 0",
        ),
        (
            {"ring.stripes": [0, 1], "nodes.floor.stripes": [1]},
            "broker.stripes",
            "its parent floor has no process in stripe 0",
        ),
        (
            {"nodes.a.clock_bound": "1ms"},
            "a.clock_bound",
            "must not be more than clock.bound of the market: raise clock.bound",
        ),
    ],
)
def test_relations(changes: dict[str, object], key: str, rule: str) -> None:
    found = dict(faults_of(changes))
    assert found[f"nodes.{key}"].startswith(rule)
    assert len(found) == (2 if "floor.stripe" in key else 1), found


def receiver(parent: str, **more: object) -> dict[str, object]:
    return {"role": "secondary-receiver", "parent": parent, **more}


def test_three_layers_are_possible() -> None:
    market = market_of({"nodes.a3": receiver("a2", backup="b")})
    assert [market.node(name).layer for name in ("a", "a2", "a3")] == [1, 2, 3]
    assert market.layers == 3
    assert market.timing.secondary_layers == 2


def test_four_layers_are_not() -> None:
    assert fault_of({"nodes.a3": receiver("a2"), "nodes.a4": receiver("a3")}) == (
        "nodes.a4.parent",
        "would be in layer 4 (a4 → a3 → a2 → a): at most 3 layers",
    )


def test_a_circle_is_told_once() -> None:
    changes = {"nodes.a2.parent": "a3", "nodes.a3": receiver("a4"), "nodes.a4": receiver("a2")}
    assert fault_of(changes) == ("nodes.a2.parent", "is a cycle: a2 → a3 → a4 → a2")


def test_below_a_circle_only_the_circle_is_told() -> None:
    changes = {
        "nodes.a1": receiver("a3"),
        "nodes.a2.parent": "a3",
        "nodes.a3": receiver("a2"),
        "nodes.a4": receiver("a3"),
    }
    assert [key for key, _ in faults_of(changes)] == ["nodes.a2.parent"]


def test_a_backup_is_of_a_layer_above() -> None:
    changes = {"nodes.b2": receiver("b", backup="a2")}
    assert fault_of(changes) == (
        "nodes.b2.backup",
        "must be of a layer above b2's, which is 2; a2 is in layer 2",
    )
    market_of({"nodes.a3": receiver("a2", backup="b2"), "nodes.b2": receiver("b")})
