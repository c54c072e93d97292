"""One search from its bounds to its verdict, and its trace in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.server import ReformationServer
from isocast.simulation.exploration.driver import Event
from isocast.simulation.exploration.mail import Mail
from isocast.simulation.exploration.market import TransitionSystem
from isocast.simulation.exploration.node import Local
from isocast.simulation.exploration.properties import RULES, Bounds
from isocast.simulation.exploration.search import Found, SearchProgress
from isocast.simulation.exploration.sweep import sweep
from isocast.simulation.world import PRODUCT
from isocast.terms.ids import NodeId, describe, is_server
from isocast.wire.packets import Data, Invite, Join, NewRing, Packet, Repair, Token

__all__ = ["SearchVerdict", "explore", "told"]


# A trace as a person would tell it: what happened at each step, and what every node did about it.


def told(market: TransitionSystem, trace: Sequence[int]) -> list[str]:
    """One line for each step, after one for the beginning."""
    state = market.start()
    lines = [_beginning(market.parts(state))]
    for move in trace:
        after = dict(market.moves(state))[move]
        node, event = market.named(move)
        before, now = market.parts(state), market.parts(after)
        done = [_done(old, new) for old, new in zip(before, now, strict=True)]
        lines.append("; ".join([_cause(market.mail, before[node].node, event), *_first(done, node)]))
        state = after
    return lines


def _first(done: list[list[str]], node: int) -> list[str]:
    """What the node itself did, then the others."""
    return [text for texts in [done[node], *done[:node], *done[node + 1 :]] for text in texts]


def _beginning(nodes: list[Local]) -> str:
    sites = [local for local in nodes if isinstance(local.machine, PrimaryReceiver)]
    waiting = [
        f"{describe(local.node)} has {_labels(list(local.machine.receiver.ledger.waiting.values()))}"
        for local in sites
        if isinstance(local.machine, PrimaryReceiver)
    ]
    epoch = sites[0].machine.receiver.accepted if isinstance(sites[0].machine, PrimaryReceiver) else ""
    ballots = [
        f"{describe(local.node)} invites everybody to ballot {local.machine.snapshot().ballot}"
        for local in nodes
        if isinstance(local.machine, ReformationServer) and local.memory.ballots
    ]
    return "; ".join([f"all sites are on the ring of epoch {epoch}, before token 1", *waiting, *ballots])


def _labels(messages: Sequence[Data]) -> str:
    return ", ".join([f"{describe(message.sender)}/{message.number}" for message in messages]) or "nothing"


def _cause(mail: Mail, node: NodeId, event: int) -> str:
    who = describe(node)
    match event:
        case Event.TIME:
            return f"{who}'s grace ends" if is_server(node) else f"{who}'s clock goes on"
        case Event.LATER:
            return f"{who} votes again, and its clock goes on"
        case Event.BALLOT:
            return f"{who} begins a ballot"
        case Event.RESTART:
            return f"{who} dies and comes back from its disk"
        case Event.SHORTER:
            return f"{who} dies and comes back with a log that lost its newest token"
        case Event.BLANK:
            return f"{who} dies and comes back without its disk"
        case _ if event >= Event.VOTES:
            votes = [_vote(packet) for packet in mail.packets(mail.choices[event - Event.VOTES])]
            return f"{who} counts the votes of {' and '.join(votes)}"
        case _:
            return f"{_packet(mail.letters[event - Event.LETTER].packet)} reaches {who}"


def _vote(packet: Packet) -> str:
    if not isinstance(packet, Join):
        return _packet(packet)
    return f"{describe(packet.sender)} (token {packet.held} of epoch {packet.epoch})"


def _packet(packet: Packet) -> str:
    who = describe(packet.sender)
    match packet:
        case Invite():
            return f"{who}'s invitation to ballot {packet.ballot}"
        case Token():
            return f"{who}'s token {packet.token_number} of epoch {packet.epoch}"
        case NewRing():
            return f"the ring of epoch {packet.ballot}"
        case Join():
            return f"the vote of {_vote(packet)} for ballot {packet.ballot}"
        case Repair():
            return f"a copy from {who} of {_packet(packet.item)}"
        case Data():
            return f"message {describe(packet.sender)}/{packet.number}"
        case _:
            return f"{who}'s {type(packet).__name__.lower()}"


def _done(old: Local, new: Local) -> list[str]:
    """What a node did, as far as others or its disk can see it."""
    if old is new:
        return []
    who = describe(new.node)
    if isinstance(new.machine, ReformationServer) and isinstance(old.machine, ReformationServer):
        return _served(who, old, new)
    if isinstance(new.machine, PrimaryReceiver) and isinstance(old.machine, PrimaryReceiver):
        return _received(who, old, new, old.machine, new.machine)
    return []


def _served(who: str, old: Local, new: Local) -> list[str]:
    if not isinstance(new.machine, ReformationServer) or len(new.memory.rings) == len(old.memory.rings):
        return [f"{who} begins ballot {new.disk.ballot}"] if new.memory.ballots > old.memory.ballots else []  # type: ignore[union-attr]
    ring = new.machine.ring
    if ring is None:
        return []
    members = ", ".join(map(describe, ring.ring))
    return [
        f"it decides the ring {members} of epoch {ring.ballot}, after token {ring.cut_token} of epoch {ring.cut_epoch}"
    ]


def _received(who: str, old: Local, new: Local, before: PrimaryReceiver, after: PrimaryReceiver) -> list[str]:
    was, now = before.receiver, after.receiver
    done = []
    if now.promised > was.promised:
        vote = "" if now.accepted == now.promised else f" and votes with token {now.held} of epoch {now.accepted}"
        done.append(f"{who} promises {now.promised}{vote}")
    if now.accepted > was.accepted:
        done.append(f"{who} enters epoch {now.accepted} with token {now.held}")
    for epoch, number, _ in new.memory.issued[len(old.memory.issued) :]:
        entry = now.ledger.entries.get(number)
        holds = f" with {_labels(entry.messages)}" if entry is not None else ""
        done.append(f"{who} sends token {number} of epoch {epoch}{holds}")
    if now.held > was.held and now.accepted == was.accepted and len(new.memory.issued) == len(old.memory.issued):
        done.append(f"{who} holds token {now.held}")
    if new.memory.journals != old.memory.journals and new.memory.journals[-1]:
        first = len(old.memory.journals[-1]) + 1 if len(new.memory.journals) == len(old.memory.journals) else 1
        fresh = new.memory.journals[-1][first - 1 :]
        done.append(f"{who} RELEASES from sequence {first} on: {', '.join(fresh)}")
    return done


@dataclass(frozen=True, slots=True)
class SearchVerdict:
    """What a search says."""

    bounds: Bounds
    mutant: str | None
    found: Found
    trace: tuple[str, ...]
    """A shortest way to the violation, in words; the first line is the beginning."""
    steps: int
    """Steps of a real machine; everything else was looked up."""
    node_states: int
    """States of single nodes that occurred."""

    def as_json(self) -> dict[str, object]:
        """For programs."""
        found = self.found
        broken = [] if found.broken is None else [{"property": found.broken[0], "text": found.broken[1]}]
        return {
            **asdict(self.bounds),
            "mutant": self.mutant,
            "states": found.states,
            "transitions": found.transitions,
            "depth": found.depth,
            "exhausted": found.exhausted,
            "machine_steps": self.steps,
            "node_states": self.node_states,
            "violations": [{**violation, "trace": list(self.trace)} for violation in broken],
        }


def explore(
    bounds: Bounds,
    mutant: str | None = None,
    *,
    states_max: int = 0,
    stories_only: bool = False,
    progress: Callable[[SearchProgress], None] | None = None,
) -> SearchVerdict:
    """Search a market of the product, or of a mutant, until something breaks or everything was visited."""
    market = TransitionSystem(bounds, PRODUCT if mutant is None else RULES[mutant].build, stories_only=stories_only)
    found = sweep(market, states_max, progress)
    trace = tuple(told(market, found.trace)) if found.broken is not None else ()
    return SearchVerdict(bounds, mutant, found, trace, market.steps, market.local_states)
