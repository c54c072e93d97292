"""The show's market without its processes: journals as they would be, and what nodes would say."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from isocast.runtime.disk.journal import Journal, ReleasedPosition
from isocast.runtime.disk.journal_reader import blocks_of
from isocast.runtime.market.model import Market, NodeRole
from isocast.runtime.watch.counters import NodeGauges
from isocast.runtime.watch.status import NodeStatus, Rates
from isocast.terms.ids import Epoch, source_id
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.trials.demo.cast import DemoNetwork
from isocast.trials.demo.floors import FLOORS, SyntheticFloor
from isocast.trials.demo.staging import set_stage
from isocast.trials.evidence import journal_of
from isocast.wire.journal_blocks import JournalMessage, ReleasedBlock
from isocast.wire.packets import SHORT_DIGEST_BYTES, ReleasedPacket, payload_digest

__all__ = ["EPOCH", "FLOOR", "NOW", "PUBLISHED", "canned_market", "released", "status_of", "write_journals"]

NOW = 1_800_000_000 * SECOND
EPOCH = Epoch(1, 1)
FLOOR = FLOORS[0]
_TOKENS, _PER_TOKEN, _EVENTS = 5, 4, 3
PUBLISHED = _TOKENS * _PER_TOKEN * _EVENTS
"""Events of one floor, in five tokens of four messages of three events."""


def canned_market(folder: Path) -> Market:
    """On the disk, with keys; nothing is bound."""
    return set_stage(folder, DemoNetwork(16, 16), loss=0.02, seed=7)


def released(market: Market, lateness_ns: int = 0) -> list[ReleasedBlock]:
    """What every receiver releases, each so late."""
    floor = SyntheticFloor(FLOOR, 7)
    events = np.concatenate([floor.until(second) for second in range(1, 5)])
    source = source_id(market.node(FLOOR.source).number, 1)
    timing = market.timing
    blocks: list[ReleasedBlock] = []
    for token in range(1, _TOKENS + 1):
        instant = NOW + token * timing.token_period_ns
        messages: list[JournalMessage] = []
        for place in range(_PER_TOKEN):
            number = (token - 1) * _PER_TOKEN + place
            batch = events[number * _EVENTS : (number + 1) * _EVENTS].copy()
            batch["time"] = instant - (place + 1) * 100 * MILLISECOND
            messages.append((source, number + 1, payload_digest(batch.tobytes()), batch.tobytes()))
        due = instant + timing.release_delay_ns
        blocks.append(
            ReleasedBlock(
                epoch=EPOCH,
                token_number=token,
                token_count=_PER_TOKEN,
                place=0,
                first_sequence=(token - 1) * _PER_TOKEN + 1,
                instant=instant,
                due=due,
                released_at=due + lateness_ns,
                clock_bound_ns=timing.clock_error_ns,
                shuffle_key=bytes(SHORT_DIGEST_BYTES),
                messages=messages,
            )
        )
    return blocks


def write_journals(
    market: Market, changes: dict[str, Callable[[list[ReleasedBlock]], list[ReleasedBlock]]] | None = None
) -> None:
    """Of everybody who keeps one; `changes` spoils those that it names."""
    keepers = [*market.receivers, *market.by_role(NodeRole.RETRANSMIT_SERVER), market.node("bank"), market.node("fund")]
    for late, plan in enumerate(keepers):
        blocks = released(market, late * MILLISECOND)
        if not plan.role.is_receiver:
            blocks = _as_heard(blocks, market)
        change = (changes or {}).get(plan.name)
        with Journal.open(journal_of(market, plan.name), 0, plan.node) as journal:
            for block in blocks if change is None else change(blocks):
                journal.append(block)


def _as_heard(blocks: Sequence[ReleasedBlock], market: Market) -> list[ReleasedBlock]:
    """What a line brings of the same: no labels, another digest, and the arrival."""
    heard: list[ReleasedBlock] = []
    for block in blocks:
        epoch, token, instant, key = block.epoch, block.token_number, block.instant, block.shuffle_key
        packets = [
            ReleasedPacket(0, epoch, 1, token, sequence, instant, 0, sequence, 1, payload, b"", shuffle_key=key)
            for sequence, (_, _, _, payload) in enumerate(block.messages, block.first_sequence)
        ]
        heard += blocks_of(packets, ReleasedPosition(), block.released_at, market.timing.release_delay_ns, 0)
    return heard


def status_of(market: Market, name: str, **changes: object) -> NodeStatus:
    """A node in peace; `gauges` are added to those of its role, `totals` are given whole."""
    plan = market.node(name)
    gauges = changes.pop("gauges", {})
    assert isinstance(gauges, dict)
    usual: dict[str, object] = {"next_sequence": 21} if plan.role.is_receiver or plan.lines else {}
    if plan.role.is_receiver:
        names = tuple(node.name for node in market.by_role(NodeRole.PRIMARY_RECEIVER))
        usual |= {"epoch": "1.1", "epoch_number": 1, "mode": "normal", "ring": names, "held_token": 6}
        usual |= {"ring_first_token": 1, "ring_start_ns": NOW + market.timing.token_period_ns}
    status = NodeStatus(
        name=name,
        role=plan.role.value,
        node_id=plan.node,
        city=plan.place.name if plan.place else "",
        pid=100 + len(name),
        at_ns=NOW,
        ready=True,
        gauges=NodeGauges(**(usual | gauges)),  # type: ignore[arg-type]
        rates=Rates(over_s=10, events=80, cpu=0.02),
    )
    return replace(status, **changes)  # type: ignore[arg-type]
