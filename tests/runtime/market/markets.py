"""Small markets for tests: what a file would say, as a mapping, and what was said against it."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from isocast.runtime.market.file import Reading, market_from_mapping
from isocast.runtime.market.model import Market

__all__ = ["FILE", "SMALL", "changed", "fault_of", "faults_of", "market_of", "reading_of"]

FILE = "test.toml"

SMALL: dict[str, Any] = {
    "timing": {"profile": "lan"},
    "nodes": {
        "a": {"role": "primary-receiver"},
        "b": {"role": "primary-receiver"},
        "c": {"role": "primary-receiver"},
        "a2": {"role": "secondary-receiver", "parent": "a", "backup": "b"},
        "floor": {"role": "primary-source"},
        "broker": {"role": "secondary-source", "parent": "floor"},
        "x": {"role": "reformation-server"},
        "y": {"role": "reformation-server"},
        "archive": {"role": "retransmit-server", "lines": ["a", "b"]},
        "bank": {"role": "customer", "lines": ["a2", "b"], "retransmit": ["archive"]},
    },
}
"""One of each role, without a warning."""


def changed(changes: Mapping[str, object]) -> dict[str, Any]:
    """SMALL with other values at dotted keys; None takes one away."""
    mapping = deepcopy(SMALL)
    for key, value in changes.items():
        table = mapping
        *path, last = key.split(".")
        for part in path:
            table = table.setdefault(part, {})
        if value is None:
            table.pop(last)
        else:
            table[last] = value
    return mapping


def reading_of(changes: Mapping[str, object] = {}) -> Reading:
    return market_from_mapping(changed(changes), FILE)


def market_of(changes: Mapping[str, object] = {}) -> Market:
    reading = reading_of(changes)
    assert not reading.faults, [str(fault) for fault in reading.faults]
    assert reading.market is not None
    return reading.market


def faults_of(changes: Mapping[str, object]) -> list[tuple[str, str]]:
    """(key, rule) of every fault."""
    reading = reading_of(changes)
    assert reading.market is None
    assert all(fault.file == FILE for fault in reading.faults)
    return [(fault.key, fault.rule) for fault in reading.faults]


def fault_of(changes: Mapping[str, object]) -> tuple[str, str]:
    """(key, rule) of the only fault."""
    (fault,) = faults_of(changes)
    return fault
