"""The state of another receiver's narrow stripes, for one whose journal does not say all that happened.

A receiver that was away long enough fills its journal from others, and what it gets so does not say which plans were
announced meanwhile. Any other edge of the same stripe knows the next numbers, what waits and what was introduced.
"""

from __future__ import annotations

import asyncio

from isocast.runtime.edge.narrow.engine import EngineState, read_engine_state
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import Market, NodePlan
from isocast.runtime.net.door import visit
from isocast.runtime.net.door_keys import core_door_key, core_visitor
from isocast.terms.errors import IsocastError
from isocast.wire.door import Snapshot, SnapshotWanted

__all__ = ["newest_state"]

_SILENCE_S = 5.0


async def newest_state(market: Market, plan: NodePlan, above: int) -> tuple[str, EngineState] | None:
    """Whose state is newest, and it; None where nobody has one that begins behind a sequence."""
    others = [one for one in market.receivers if one.line and one.tcp_port and one is not plan]
    others = [one for one in others if one.stripe == plan.stripe]
    found = await asyncio.gather(*[_state_of(market, plan, other) for other in others])
    states = [(other.name, state) for other, state in zip(others, found, strict=True) if state is not None]
    states = [(name, state) for name, state in states if state.next_sequence > above and state.core == plan.stripe]
    return max(states, key=lambda one: one[1].next_sequence, default=None)


async def _state_of(market: Market, plan: NodePlan, other: NodePlan) -> EngineState | None:
    name = core_visitor(plan)
    try:
        key = core_door_key(market, load_keys(market, plan), name)
        if key is None:
            return None
        here = await visit(other.address, other.tcp_port, name, key)
        try:
            await here.send(SnapshotWanted())
            async with asyncio.timeout(_SILENCE_S):
                return read_engine_state((await here.expect(Snapshot)).events)
        finally:
            await here.close()
    except (IsocastError, OSError, TimeoutError, ValueError):
        return None
