"""Who is who: one space of 64-bit ids, and epochs that compare as ballots do."""

from itertools import pairwise

import pytest

from isocast.terms.ids import (
    NO_EPOCH,
    Epoch,
    Label,
    describe,
    is_server,
    is_site,
    is_source,
    server_id,
    source_id,
)


@pytest.mark.parametrize(
    "node, kind, name",
    [
        (1, is_site, "site1"),
        (65_535, is_site, "site65535"),
        (server_id(1), is_server, "server1"),
        (server_id(65_535), is_server, "server65535"),
        (source_id(1), is_source, "source1"),
        (source_id(7, 3), is_source, "source7#3"),
        (source_id((1 << 32) - 1, (1 << 32) - 1), is_source, f"source{(1 << 32) - 1}#{(1 << 32) - 1}"),
    ],
)
def test_a_node_is_of_one_kind(node: int, kind: object, name: str) -> None:
    assert [check(node) for check in (is_site, is_server, is_source)].count(True) == 1
    assert callable(kind)
    assert kind(node)
    assert describe(node) == name
    assert 0 < node < 1 << 64


def test_nobody_is_no_site() -> None:
    assert not is_site(0)


def test_a_new_incarnation_is_another_source() -> None:
    assert source_id(7, 1) != source_id(7, 2)
    assert source_id(7, 1) >> 32 == source_id(7, 2) >> 32


def test_epochs_compare_number_first_then_server() -> None:
    ordered = [NO_EPOCH, Epoch(1, server_id(1)), Epoch(1, server_id(2)), Epoch(2, server_id(1))]
    assert all(lower < higher for lower, higher in pairwise(ordered))
    assert [str(epoch) for epoch in ordered] == ["0.0", "1.1", "1.2", "2.1"]


def test_labels_sort_by_source_then_number() -> None:
    assert Label(1, 9) < Label(2, 1) < Label(2, 2)
