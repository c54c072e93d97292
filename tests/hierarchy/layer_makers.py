"""The ring of three of `tests.ring.makers` with two secondary receivers, 4 and 5, below site 1.

δ_S = 10 ms and τ_{r,S} = 24 ms, so Δ_A = 110+22+10+2·24 = 190 ms. Secondary token v of group 1 is due at T_v+Δ_A from
(1, 4, 5)[v mod 3].
"""

from __future__ import annotations

from dataclasses import replace

from tests.ring.makers import MS, START, TIMING, Chain, T, blank, founding, receipt, secret

from isocast.hierarchy.follower import Follower, Support
from isocast.hierarchy.headship import GroupPlan
from isocast.ring.effects import Effect, Unicast
from isocast.ring.receiver import Receiver
from isocast.ring.settings import RingSettings
from isocast.terms.ids import NodeId
from isocast.wire.packets import NewRing, SecondaryToken

__all__ = [
    "DELAY",
    "FAMILY",
    "GROUPS",
    "LAYERED",
    "RETRY_S",
    "certify",
    "due",
    "follower",
    "give",
    "head",
    "passed",
    "said",
]

TIMES = replace(TIMING, secondary_detect_ns=10 * MS, secondary_retry_ns=24 * MS, release_delay_ns=0)
LAYERED = RingSettings(TIMES, window=8, batch_max=16, stall_tokens=4)
DELAY = 190 * MS
"""Δ_A."""
RETRY_S = 24 * MS
"""τ_{r,S}."""
FAMILY = (1, 4, 5)
"""Group 1, its head first."""
GROUPS = GroupPlan.below({4: 1, 5: 1}, {4: 2, 5: 2})
"""The only group of that market; the backup of its members is site 2."""


def due(token_number: int) -> int:
    """When a token of the first ring is released, and its secondary token passes."""
    return T(token_number) + DELAY


def follower(
    site: NodeId = 4,
    chain: Chain | None = None,
    rules: RingSettings = LAYERED,
    ring: NewRing | None = None,
    family: tuple[NodeId, ...] = FAMILY,
) -> Follower:
    """A secondary receiver of site 1 with backup 2 on the first ring, which holds a chain already."""
    ring = ring or (chain.ring if chain else founding())
    machine = Follower(site, rules, secret(site), blank(ring.universe), Support(1, 2, rules.timing), family)
    entries = tuple(chain.entries) if chain else ()
    now = entries[-1].token.instant if entries else START // 2
    machine.install(ring, 0, entries, now)
    machine.take(now)
    return machine


def head(chain: Chain | None = None, rules: RingSettings = LAYERED) -> Receiver:
    """Site 1 on the first ring, which holds a chain already."""
    ring = chain.ring if chain else founding()
    machine = Receiver(1, rules, secret(1), blank(ring.universe))
    entries = tuple(chain.entries) if chain else ()
    now = entries[-1].token.instant if entries else START // 2
    machine.install(ring, 0, entries, now)
    machine.take(now)
    return machine


def give(machine: Receiver, chain: Chain) -> None:
    """Let a receiver have a whole chain, each token at its instant."""
    for entry in chain.entries:
        for message in entry.messages:
            machine.on_data(message, entry.token.instant)
        machine.on_token(entry.token, entry.token.instant)
    machine.flush()


def certify(machine: Receiver, chain: Chain, now: int, *sites: NodeId) -> None:
    """Let a receiver hear receipts for a whole chain."""
    for site in sites:
        machine.on_receipt(receipt(site, chain), now)


def said(sender: NodeId, token_number: int, chain: Chain, group: NodeId = 1) -> SecondaryToken:
    """A secondary token."""
    return SecondaryToken(0, chain.ring.ballot, sender, group, token_number)


def passed(effects: list[Effect] | tuple[Effect, ...]) -> list[tuple[NodeId, int]]:
    """(to, v) of the secondary tokens among some effects."""
    return [
        (effect.to, effect.packet.token_number)
        for effect in effects
        if isinstance(effect, Unicast) and isinstance(effect.packet, SecondaryToken)
    ]
