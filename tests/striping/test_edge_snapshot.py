"""A snapshot of an edge striper: what has a right digest is not yet one."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from tests.striping.edge_streams import PLAN, SETTINGS, random_tokens

from isocast.striping.edge import EdgeStriper
from isocast.striping.edge_snapshot import StriperSnapshot, read_striper_snapshot, write_striper_snapshot
from isocast.striping.plan import PlanNotice
from isocast.terms.errors import RemoteProtocolError
from isocast.wire.packets import SHORT_DIGEST_BYTES, short_digest_of

MAGIC = b"ICES"
NOTICE = {"version": 2, "digest": "11" * SHORT_DIGEST_BYTES, "stripes": 3, "symbols": 9}
"""Of a plan that takes effect at the end of the token."""
WRONG: tuple[object, ...] = (5, -1, 1 << 64, 1e999, 0.5, None, True, "x", [5], [None], ["x"], [[]], [{}], {"x": 5})


def read(body: str) -> StriperSnapshot:
    """What is in a body that was sealed as a writer seals it."""
    packed = zlib.compress(body.encode())
    return read_striper_snapshot(MAGIC + packed + short_digest_of(MAGIC, packed))


def written() -> dict[str, Any]:
    """The values of a striper in the middle of its work."""
    striper = EdgeStriper(PLAN, 0, SETTINGS)
    for part in random_tokens(1, 3, 150.0):
        striper.step(part)
    raw = write_striper_snapshot(striper.snapshot())
    value: dict[str, Any] = json.loads(zlib.decompress(raw[len(MAGIC) : -SHORT_DIGEST_BYTES]))
    return value | {"announced": NOTICE}


WHOLE = written()


def test_what_a_writer_seals_is_read() -> None:
    snapshot = read(json.dumps(WHOLE))
    assert snapshot.announced == PlanNotice(2, b"\x11" * SHORT_DIGEST_BYTES, 3, 9)
    assert min(len(queue.sequences) for queue in snapshot.queues) > 1, "something waits on every stripe"
    assert read_striper_snapshot(write_striper_snapshot(snapshot)) == snapshot


@pytest.mark.parametrize("body", ["5", "null", '"x"', "true", "1e999", "NaN", "[]", "{}", "[" * 100_000, "", "\0"])
def test_a_body_that_is_no_object_is_damage(body: str) -> None:
    with pytest.raises(RemoteProtocolError, match="makes no sense"):
        read(body)


@pytest.mark.parametrize("key", WHOLE)
def test_a_value_of_another_kind_is_damage(key: str) -> None:
    for wrong in wrong_ones(WHOLE[key]):
        insist_on_damage(WHOLE | {key: wrong})


@pytest.mark.parametrize("key", WHOLE["queues"][0])
def test_a_value_of_another_kind_in_a_queue_is_damage(key: str) -> None:
    first, *others = WHOLE["queues"]
    for wrong in wrong_ones(first[key]):
        insist_on_damage(WHOLE | {"queues": [first | {key: wrong}, *others]})


@pytest.mark.parametrize("key", NOTICE)
def test_a_value_of_another_kind_in_a_notice_is_damage(key: str) -> None:
    for wrong in wrong_ones(NOTICE[key]):
        insist_on_damage(WHOLE | {"announced": NOTICE | {key: wrong}})


def test_a_notice_whose_figures_no_plan_has_is_damage() -> None:
    for key, wrong in (("version", 0), ("stripes", 0), ("stripes", 65_537), ("symbols", 1_000_001), ("digest", "11")):
        insist_on_damage(WHOLE | {"announced": NOTICE | {key: wrong}})


def test_an_instant_that_no_clock_shows_is_damage() -> None:
    late = 1 << 63
    first, *others = WHOLE["queues"]
    (_, size), *sent = first["sent"]
    for wrong in (
        {"clock": late},
        {"step_due": late},
        {"queues": [first | {"clock": late}, *others]},
        {"queues": [first | {"sent": [(late, size), *sent]}, *others]},
    ):
        insist_on_damage(WHOLE | wrong)


def test_a_directory_that_is_cut_is_damage() -> None:
    """Found before a striper takes anything over: half a state would be none."""
    with pytest.raises(RemoteProtocolError, match="directory of a striper's snapshot is cut"):
        read(json.dumps(WHOLE | {"introduced": "00"}))


def wrong_ones(right: object) -> list[object]:
    """What may not stand in its place: a number may where one stands, and where a notice stands there may be none."""
    fine = {int: "5", bool: "True", dict: "None"}.get(type(right))
    return [wrong for wrong in WRONG if repr(wrong) != fine]


def insist_on_damage(values: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError, match="makes no sense"):
        read(json.dumps(values))
