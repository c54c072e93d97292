"""Where every search begins: all sites on a first ring, before its first token, and two messages to order."""

from __future__ import annotations

from collections import deque

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.ring.effects import Effect, Multicast, Unicast
from isocast.ring.inputs import PublishRequested, TimerFired
from isocast.simulation.exploration.driver import Driver
from isocast.simulation.exploration.mail import Mail, numbers_in
from isocast.simulation.exploration.node import Local
from isocast.terms.ids import NodeId, is_site, is_source
from isocast.wire.packets import Packet

__all__ = ["founded"]


def founded(driver: Driver) -> list[Local]:
    """The nodes of a market whose first ring was just formed, in the order of its mail."""
    nodes = [driver.blank(node) for node in driver.mail.nodes]
    sources = [local for local in nodes if is_source(local.node)]
    for source in sources:
        driver.step(source, PublishRequested(b"key", b"payload %d" % source.node))
    messages = [source.sent for source in sources]
    if not driver.bounds.flying:
        for place, site in enumerate([local for local in nodes if is_site(local.node)]):
            # Everybody has both messages, every other site in another order.
            letters = messages[place % 2 :] + messages[: place % 2]
            driver.messages[site.node] = [packet for some in letters for packet in _packets(driver.mail, some, place)]
            driver.refill(site)
    _exchange(driver, nodes)
    for local in nodes:
        # What was said so far has arrived.
        local.sent = 0
        local.memory.ballots = 0
        local.memory.rings = ()
        driver.relax(local)
    if driver.bounds.flying:
        for source, own in zip(sources, messages, strict=True):
            source.sent = own
    return nodes


def _exchange(driver: Driver, nodes: list[Local]) -> None:
    """Let everything that sites and servers say reach all of them at once, until all are on one ring."""
    said: deque[tuple[NodeId, Packet]] = deque()

    def hear(local: Local, effect: Effect) -> None:
        if isinstance(effect, Multicast | Unicast):
            said.append((local.node, effect.packet))

    driver.observe = hear
    sites = [local for local in nodes if is_site(local.node)]
    listeners = [local for local in nodes if not is_source(local.node)]
    founder = nodes[len(sites)]
    driver.step(founder, TimerFired())
    driver.step(founder, TimerFired())
    while said or not all(_on_a_ring(site) for site in sites):
        if said:
            sender, packet = said.popleft()
            for local in listeners:
                if local.node != sender:
                    driver.receive(local, packet)
            continue
        for local in sites:
            local.now = max(local.now, local.machine.next_deadline())
            driver.step(local, TimerFired())
    driver.observe = None


def _on_a_ring(site: Local) -> bool:
    return isinstance(site.machine, PrimaryReceiver) and site.machine.receiver.ring is not None


def _packets(mail: Mail, letters: int, to: int) -> list[Packet]:
    found = [mail.letters[number] for number in numbers_in(letters)]
    return [letter.packet for letter in found if letter.to == to]
