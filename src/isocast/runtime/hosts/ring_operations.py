"""What an operator may ask of a primary receiver: to leave the ring for a while, and to change U (protocol §5).

Nothing here is obeyed at once. To drain is to ask for a ring without this site; to add or remove a site is to put a
control entry into this site's next token, which a majority of the U before must certify. `ring` says how far it is.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.ring.effects import ControlOutcome
from isocast.ring.inputs import ControlRequested, DrainRequested
from isocast.ring.universe import UNIVERSE_MIN
from isocast.runtime.hosts.context import Context
from isocast.runtime.hosts.driver import Driver
from isocast.runtime.market.left_out import LeftOut
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
        driver: Driver,
        outcomes: MutableMapping[tuple[str, int], ControlOutcome],
        left_out: LeftOut,
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

    async def _ring(self, _: Mapping[str, Any]) -> Mapping[str, object]:
        """How this site sees the ring, and U."""
        receiver, market = self._machine.receiver, self._context.market
        ring = receiver.ring
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
            raise LocalProtocolError(f"site {site} was left out of U by force, and its number never votes again")
        self._request(ControlKind.ADD_SITE, site)
        return {"already": False}

    async def _remove(self, request: Mapping[str, Any]) -> Mapping[str, object]:
        """U less one site."""
        site = self._site_in(request)
        universe = self._machine.receiver.ledger.universe
        if site not in universe:
            return {"already": True}
        if len(universe) <= UNIVERSE_MIN:
            raise LocalProtocolError(f"U has {len(universe)} sites, and a market needs {UNIVERSE_MIN}: add one first")
        self._request(ControlKind.REMOVE_SITE, site)
        return {"already": False}

    def _site_in(self, request: Mapping[str, Any]) -> NodeId:
        site = request.get("site")
        if not isinstance(site, int) or isinstance(site, bool) or not is_site(site):
            raise LocalProtocolError('"site" is the id of a receiver')
        receiver = self._machine.receiver
        ring = receiver.ring
        if ring is None or receiver.site not in ring.ring:
            raise LocalProtocolError("this site is not on the ring, and has no token to put it into: ask another")
        return site

    def _request(self, kind: ControlKind, site: NodeId) -> None:
        name = self._context.market.name_of(site)
        self._context.log.warning("U changes", by="operator", kind=kind.name, site=site, name=name)
        self._outcomes.pop((kind.name, site), None)
        self._driver.feed(ControlRequested(ControlEntry(kind, site, b"")))
