"""What an operator may ask of a primary receiver about stripe plans: to announce one in its next token.

Nothing changes by the request itself. The entry is ordered like any message, and every receiver's narrow stripes follow
the plan behind the token that carries it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.ring.inputs import ControlRequested
from isocast.runtime.edge.narrow.plans import PlanFolder
from isocast.runtime.hosts.driver import Driver
from isocast.runtime.hosts.process import Context
from isocast.striping.plan import plan_entry
from isocast.terms.errors import LocalProtocolError

__all__ = ["offer_plan_operations"]


def offer_plan_operations(context: Context, machine: PrimaryReceiver, driver: Driver[ControlRequested]) -> None:
    """At the operator's door of a market with narrow stripes."""
    if context.market.edge is None:
        return
    folder = PlanFolder(context.market.edge)

    async def announce(request: Mapping[str, Any]) -> Mapping[str, object]:
        try:
            digest = bytes.fromhex(request.get("digest", ""))
        except (TypeError, ValueError):
            digest = b""
        plan = folder.find(digest)
        if plan is None:
            raise LocalProtocolError('this node has no plan file with this "digest"')
        receiver = machine.receiver
        if receiver.ring is None or receiver.site not in receiver.ring.ring:
            raise LocalProtocolError("this site is not on the ring and sends no token: ask another site")
        context.log.warning("a stripe plan is announced", by="operator", version=plan.version, digest=digest.hex())
        driver.feed(ControlRequested(plan_entry(plan)))
        return {"version": plan.version}

    context.operations["stripe-plan"] = announce
