"""Each kind of value: what passes, and what is said to the rest."""

from typing import Any

import pytest
from tests.runtime.market.markets import fault_of

from isocast.runtime.market.keys import NODE_TABLE, SETTINGS, Key
from isocast.runtime.market.values import Faults, Values

TIME = 'must be a time with its unit, such as "5ms" or "1.5s", in quotes'
SIZE = 'must be a size with its unit, such as "4MiB" or "10GB", in quotes'


@pytest.mark.parametrize(
    "key, value, rule",
    [
        ("name", 5, "must be a text, in quotes, not 5"),
        ("name", "", "must not be empty: leave it out for its default"),
        ("name", ["x"], "must be a text, in quotes, not a list"),
        ("name", "x" * 2000, "must be a text, in quotes, not a text of 2000 characters"),
        ("seal", "true", 'must be true or false, not "true"'),
        ("durability", "pwoer", 'must be "process" | "power", not "pwoer"; did you mean "power"?'),
        ("durability", True, 'must be "process" | "power", not true'),
        ("timing.detect", 5, f"{TIME}, not 5"),
        ("timing.detect", "5", f'{TIME}, not "5"'),
        ("timing.detect", "0ms", 'must be at least 1ns and at most 86400s, not "0ms"'),
        ("timing.detect", "3d", 'must be at least 1ns and at most 86400s, not "3d"'),
        ("timing.retries_max", 0, "must be from 1 to 1,000, not 0"),
        ("timing.retries_max", 3.0, "must be a whole number, not 3.0"),
        ("timing.retries_max", True, "must be a whole number, not true"),
        ("ring.stripes", 0, "must be a list of whole numbers, not 0"),
        ("ring.stripes", [], "must not be empty"),
        ("ring.stripes", [0, 1, 0], "0 stands in it twice"),
        ("ring.stripes", [70_000], "must be from 0 to 65,535, not 70000"),
        ("network.groups", "239.1.1", 'must be an IPv4 address such as "10.1.2.3", not "239.1.1"'),
        ("network.groups", "::1", 'must be an IPv4 address such as "10.1.2.3", not "::1"'),
        ("network.groups", 5, 'must be an IPv4 address such as "10.1.2.3", not 5'),
        ("network.mtu", 1499, "must be from 1,500 to 9,000, not 1499"),
        ("network.mtu", 9001, "must be from 1,500 to 9,000, not 9001"),
        ("network.receive_buffer", 4, f"{SIZE}, not 4"),
        ("network.receive_buffer", "1B", 'must be at least 64KiB and at most 1GiB, not "1B"'),
        ("impairment.loss", 1, "must be a probability, 0 or more and less than 1, not 1"),
        ("impairment.loss", float("nan"), "must be a probability, 0 or more and less than 1, not nan"),
        ("impairment.loss", False, "must be a probability, 0 or more and less than 1, not false"),
        ("nodes.a.latitude", 91, "must be degrees from -90 to 90, not 91"),
        ("nodes.a.latitude", float("inf"), "must be degrees from -90 to 90, not inf"),
        ("nodes.a.port", 65_533, "must be from 1 to 65,532, not 65533"),
        ("nodes.a.address", {"x": 1}, 'must be an IPv4 address such as "10.1.2.3", not a table'),
        ("nodes.bank.lines", "a", 'must be a list of names of nodes, not "a"'),
        ("nodes.bank.lines", ["a", "a"], '"a" stands in it twice'),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_what_it_must_be(key: str, value: object, rule: str) -> None:
    more: dict[str, object] = {"nodes.a.longitude": 1} if key.endswith("latitude") else {}
    assert fault_of({key: value} | more) == (key, rule)


KEYS = [key for table in (*SETTINGS, NODE_TABLE) for key in table.keys]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_a_default_is_a_value_that_the_file_may_say(key: Key) -> None:
    """A default in the table of keys passes its own rule; where there is none, it is told how the value comes about."""
    if key.default is None:
        assert key.otherwise
        return
    faults = Faults("x")
    left_out, said = Values({}, (key,), faults), Values({key.name: _as_toml(key.default)}, (key,), faults)
    assert not list(faults)
    assert left_out._checked == said._checked  # noqa: SLF001  # whatever its kind
    assert not left_out.given
    assert said.given == {key.name}


def _as_toml(value: Any) -> object:  # noqa: ANN401  # any default
    return list(value) if isinstance(value, tuple) else value


def test_the_same_fault_counts_once() -> None:
    faults = Faults("x")
    faults.add("a.b", "is wrong")
    faults.add("a.b", "is wrong")
    assert len(faults) == 1
    assert faults.touch("a.")
    assert not faults.touch("b")
