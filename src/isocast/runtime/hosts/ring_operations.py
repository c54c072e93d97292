"""What an operator may ask of a primary receiver: to leave the ring for a while, to change U, to announce a plan.

Nothing here is obeyed at once (protocol §5). To drain is to ask for a ring without this site; to add or remove a site
is to put a control entry into this site's next token, which a majority of the U before must certify. `ring` says how
far it is. The operator signed what is asked for: the door only carries the order. Every receiver's narrow stripes
follow a plan (§4.4) behind the token that announces it.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from isocast.nodes.primary_receiver import PrimaryReceiver, PrimaryReceiverInput
from isocast.ring.effects import ControlOutcome
from isocast.ring.inputs import ControlRequested, DrainRequested
from isocast.ring.ledger import UNIVERSE_MIN
from isocast.runtime.edge.narrow.plans import PlanFolder
from isocast.runtime.hosts.driver import Driver
from isocast.runtime.hosts.order_checks import insist_on_order, order_in
from isocast.runtime.hosts.process import Context
from isocast.runtime.market.founding import LeftOutSites
from isocast.striping.plan import plan_entry
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NodeId, is_site
from isocast.wire.packets import ControlEntry, ControlKind

__all__ = ["RingOperations"]


class RingOperations:
    """The operator's hands on one primary receiver."""

    def __init__(
        self,
        context: Context,
        machine: PrimaryReceiver,
        driver: Driver[PrimaryReceiverInput, Any],
        outcomes: MutableMapping[tuple[str, int], ControlOutcome],
        left_out: LeftOutSites,
    ) -> None:
        """Offers itself at the operator's door; `outcomes` say what became of requests."""
        self._left_out = left_out
        self._context = context
        self._outcomes = outcomes
        self._machine = machine
        self._driver = driver
        context.operations.update(
            {"ring": self._ring, "drain": self._drain, "add-site": self._add, "remove-site": self._remove}
        )
        if context.market.edge is not None:
            self._plans = PlanFolder(context.market.edge)
            context.operations["stripe-plan"] = self._announce

    async def _ring(self, _: Mapping[str, Any]) -> Mapping[str, object]:
        """How this site sees the ring, and U."""
        receiver, market = self._machine.receiver, self._context.market
        ring, book = receiver.ring, self._context.keys.book
        certified = receiver.certificates.certified
        return {
            "site": receiver.site,
            "epoch": str(receiver.accepted),
            "mode": receiver.mode.value,
            "ring": list(ring.ring) if ring is not None else [],
            "universe": list(receiver.ledger.universe),
            "settled": not receiver.ledger.uncertified_change(certified)[0],
            "uncertified": ring is not None and ring.uncertified,
            "leaving": self._machine.leaving,
            "held": receiver.held,
            "certified": certified,
            "order": receiver.ledger.head.order,
            "roster": 0 if book is None else book.entries[-1][1].serial,
            "left_out": list(self._left_out.sites),
            "knows": [plan.node for plan in market.nodes],
            "outcomes": {f"{kind} {site}": outcome.value for (kind, site), outcome in self._outcomes.items()},
        }

    async def _drain(self, request: Mapping[str, Any]) -> None:
        """Ask for a ring without this site, or take that back."""
        leaving = request.get("leaving", True)
        if not isinstance(leaving, bool):
            raise LocalProtocolError('"leaving" is true, or false to come back')
        if self._machine.leaving != leaving:
            self._context.log.info("leaves the ring" if leaving else "comes back to the ring", by="operator")
        self._driver.feed(DrainRequested(leaving))

    async def _add(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """U plus one site."""
        site = self._site_in(request)
        if site in self._machine.receiver.ledger.universe:
            return {"already": True}
        if self._context.market.find(site) is None:
            raise LocalProtocolError(f"the market file that this node was started with has no site {site}: restart it")
        if site in self._left_out.sites:
            raise LocalProtocolError(f"site {site} was removed from U by force, and its number must not vote again")
        self._request(ControlEntry(ControlKind.ADD_SITE, site, b"", order_in(request)))
        return {"already": False}

    async def _remove(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """U less one site."""
        site = self._site_in(request)
        universe = self._machine.receiver.ledger.universe
        if site not in universe:
            return {"already": True}
        if len(universe) <= UNIVERSE_MIN:
            raise LocalProtocolError(f"U has {len(universe)} sites, and a market needs {UNIVERSE_MIN}: add one first")
        self._request(ControlEntry(ControlKind.REMOVE_SITE, site, b"", order_in(request)))
        return {"already": False}

    def _site_in(self, request: Mapping[str, Any]) -> NodeId:
        site = request.get("site")
        if not isinstance(site, int) or isinstance(site, bool) or not is_site(site):
            raise LocalProtocolError('"site" is the id of a receiver')
        self._insist_on_tokens()
        return site

    def _insist_on_tokens(self) -> None:
        receiver = self._machine.receiver
        ring = receiver.ring
        if ring is None or receiver.site not in ring.ring:
            raise LocalProtocolError("this site is not on the ring and sends no token: ask another site")

    async def _announce(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """A stripe plan in this site's next token."""
        try:
            digest = bytes.fromhex(request.get("digest", ""))
        except (TypeError, ValueError):
            digest = b""
        plan = self._plans.find(digest)
        if plan is None:
            raise LocalProtocolError('this node has no plan file with this "digest"')
        self._insist_on_tokens()
        entry = plan_entry(plan)._replace(order=order_in(request))
        self._insist_on_order(entry)
        self._context.log.warning(
            "a stripe plan is announced", by="operator", version=plan.version, digest=digest.hex()
        )
        self._driver.feed(ControlRequested(entry))
        return {"version": plan.version}

    def _request(self, entry: ControlEntry) -> None:
        self._insist_on_order(entry)
        kind, site = entry.kind, entry.subject
        name = self._context.market.name_of(site)
        self._context.log.warning("U changes", by="operator", kind=kind.name, site=site, name=name)
        self._outcomes.pop((kind.name, site), None)
        self._driver.feed(ControlRequested(entry))

    def _insist_on_order(self, entry: ControlEntry) -> None:
        receiver = self._machine.receiver
        last, following = receiver.ledger.head.order, receiver.held + 1
        insist_on_order(receiver.notary, entry, self._context.stripe, following, last, self._context.clock.now())
