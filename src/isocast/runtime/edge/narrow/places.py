"""Where the edge is on the network: groups of narrow stripes and of their repairs, where requests go, what fits."""

from __future__ import annotations

from collections.abc import Iterable

from isocast.feeds.mold import HEADER_BYTES
from isocast.runtime.market.model import EdgeTable, Market, NodePlan
from isocast.runtime.net.sockets import Endpoint
from isocast.security.repairs import REPAIR_OVERHEAD
from isocast.security.stripe_seals import STRIPE_SEAL_BYTES
from isocast.striping.plan import EdgeStripe, StripePlan
from isocast.striping.rates import budget_bytes
from isocast.terms.errors import ConfigurationError
from isocast.wire.limits import IP_UDP_BYTES, STANDARD_MTU
from isocast.wire.stripe_proofs import stripe_proof_bytes

__all__ = [
    "check_cores",
    "edge_of",
    "groups_of",
    "numbers_max",
    "proof_groups_of",
    "repair_budget",
    "repair_groups_of",
    "repair_room",
    "request_endpoint",
]

_LONGEST = 2 + 44
"""The longest message with its length."""
_SHORTEST = 2 + 12
_DAY_S = 86_400
_LEAST = IP_UDP_BYTES + REPAIR_OVERHEAD + HEADER_BYTES + _LONGEST
"""A repair of one message."""
_WHOLE = IP_UDP_BYTES + STRIPE_SEAL_BYTES
"""Around a packet that is repaired as it was packed."""


def edge_of(market: Market) -> EdgeTable:
    """The market's narrow stripes; ConfigurationError if it has none."""
    if market.edge is None:
        raise ConfigurationError(market.file, "edge.plan", "must be given: without a plan there are no narrow stripes")
    return market.edge


def check_cores(market: Market, plan: StripePlan) -> None:
    """ConfigurationError for a plan that divides other core stripes than the market's."""
    lacking = [core for core in market.stripes if not plan.of_core(core)]
    if lacking:
        raise ConfigurationError(plan.file, "core", f"has no plan for stripe {lacking[0]} of the market")
    strange = [core for core in plan.cores if core not in market.all_stripes]
    if strange:
        # Its symbols travel in another stripe, whose receivers would not carry them.
        listed = ", ".join(map(str, market.all_stripes))
        raise ConfigurationError(plan.file, "core", f"stripe {strange[0]} is not in ring.stripes ({listed})")


def request_endpoint(market: Market, plan: NodePlan, core: int | None = None) -> Endpoint:
    """Where a receiver's edge, or a retransmit server, takes requests; `core`: that of its process of this stripe."""
    if core is not None and core != plan.stripe:
        whole = market.whole or market
        plan = next((one for one in whole.processes_of(plan.origin) if one.stripe == core), plan)
    return Endpoint(plan.address, edge_of(market).request_port + market.network.stripe_ports * plan.stripe)


def groups_of(market: Market, node: NodePlan, stripes: Iterable[EdgeStripe]) -> list[str]:
    """The groups in which one receiver sends some stripes."""
    return [edge_of(market).group(node.number, stripe.number) for stripe in stripes]


def proof_groups_of(market: Market, node: NodePlan, stripes: Iterable[EdgeStripe]) -> list[str]:
    """The groups in which one receiver proves them; none where nobody signs."""
    if not market.security.signatures:
        return []
    return [edge_of(market).proof_group(node.number, stripe.number) for stripe in stripes]


def repair_groups_of(market: Market, node: NodePlan, stripes: Iterable[EdgeStripe]) -> list[str]:
    """The groups in which one retransmit server repairs them."""
    return [edge_of(market).repair_group(node.number, stripe.number) for stripe in stripes]


def numbers_max(rate: int) -> int:
    """The highest number of a day that a stripe can reach: all its messages the shortest, with their lengths."""
    return rate * _DAY_S // (8 * _SHORTEST)


def repair_budget(market: Market, plan: StripePlan, stripe: int) -> int:
    """IP bytes of a stripe's repairs in any token period: a share of its own, and at least one message.

    Where stripes are proven, packets are repaired as they were packed: then at least the largest packet, with a PROOF.
    """
    found = plan.by_number.get(stripe)
    rate = 0 if found is None else found.rate
    budget = budget_bytes(rate, market.timing.token_period_ns)
    least = _LEAST
    if market.security.signatures:
        least = min(budget, STANDARD_MTU) + 2 * _WHOLE + stripe_proof_bytes(1, 0)
    return max(int(budget * edge_of(market).repair_share), least)


def repair_room(budget: int, most: int) -> int:
    """Bytes of messages in one repair of at most so many bytes."""
    return min(budget - IP_UDP_BYTES - REPAIR_OVERHEAD - HEADER_BYTES, most)
