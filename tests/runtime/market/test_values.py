"""The keys of a market file: their bounds, and defaults that are within them."""

from typing import Any

import pytest
from tests.runtime.market.markets import fault_of

from isocast.runtime.market.keys import NODE_TABLE, SETTINGS
from isocast.terms.toml_files import Faults, Key, Values


@pytest.mark.parametrize(
    "key, value, rule",
    [
        ("name", "", "must not be empty: leave it out for its default"),
        ("durability", "pwoer", 'must be one of "process", "power", not "pwoer"; did you mean "power"?'),
        ("timing.detect", "0ms", 'must be at least 1ns and at most 86400s, not "0ms"'),
        ("timing.detect", "3d", 'must be at least 1ns and at most 86400s, not "3d"'),
        ("timing.retries_max", 0, "must be from 1 to 1,000, not 0"),
        ("ring.stripes", [], "must not be empty"),
        ("ring.stripes", [70_000], "must be from 0 to 65,535, not 70000"),
        ("network.groups", "239.1.1", 'must be an IPv4 address such as "10.1.2.3", not "239.1.1"'),
        ("network.mtu", 1499, "must be from 1,500 to 9,000, not 1499"),
        ("network.mtu", 9001, "must be from 1,500 to 9,000, not 9001"),
        ("network.receive_buffer", "1B", 'must be at least 64KiB and at most 1GiB, not "1B"'),
        ("impairment.loss", 1, "must be a probability, 0 or more and less than 1, not 1"),
        ("nodes.a.latitude", 91, "must be a number of degrees from -90 to 90, not 91"),
        ("nodes.a.port", 65_533, "must be from 1 to 65,532, not 65533"),
        ("nodes.bank.lines", "a", 'must be a list of names of nodes, not "a"'),
    ],
)
def test_a_value_out_of_bounds_is_told_what_it_must_be(key: str, value: object, rule: str) -> None:
    more: dict[str, object] = {"nodes.a.longitude": 1} if key.endswith("latitude") else {}
    assert fault_of({key: value} | more) == (key, rule)


KEYS = [key for table in (*SETTINGS, NODE_TABLE) for key in table.keys]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_a_default_is_a_value_that_the_file_may_say(key: Key) -> None:
    """A default in the table of keys passes its own rule; where there is none, it is told how the value comes about."""
    if key.default is None:
        assert key.otherwise or key.required
        return
    faults = Faults("x")
    left_out, said = Values({}, (key,), faults), Values({key.name: _as_toml(key.default)}, (key,), faults)
    assert not list(faults)
    assert left_out._checked == said._checked  # noqa: SLF001  # whatever its kind
    assert not left_out.given
    assert said.given == {key.name}


def _as_toml(value: Any) -> object:  # noqa: ANN401  # any default
    return list(value) if isinstance(value, tuple) else value
