"""What can happen to one node, and what it does: the driver of the explored market.

A clock moves only when its own node is awake: to the node's next deadline, or to the instant of a token that
arrives (a packet takes time). Clocks of different nodes have nothing to do with one another, so every order of
deadlines and arrivals occurs, and a node that stays behind for ever is one that crashed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import assert_never

from isocast.checks.properties import title
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.server import ReformationServer, ServerState
from isocast.ring.effects import (
    BallotChosen,
    Effect,
    EntryAppended,
    EntryCompleted,
    LogReplaced,
    Multicast,
    OutboxAppended,
    OutboxFreed,
    Persist,
    PromiseMade,
    ReadJournal,
    Record,
    Release,
    RingDecided,
    RingInstalled,
    Unicast,
)
from isocast.ring.inputs import JournalRead, PacketsArrived, TimerFired
from isocast.ring.ledger import Checkpoint
from isocast.ring.settings import RingSettings
from isocast.ring.source import OutboxState, PrimarySource
from isocast.ring.storage import SiteState
from isocast.simulation.exploration.mail import Mail
from isocast.simulation.exploration.node import Local
from isocast.simulation.exploration.properties import Bounds, HastyTiming, hear_all, relax_server, relax_site
from isocast.simulation.host import Ordinary
from isocast.simulation.world import Build
from isocast.terms.ids import NO_EPOCH, NodeId, describe, is_server, is_site, server_id
from isocast.wire.packets import Nack, NewRing, Packet, RangeRequest, Repair, Suspect, Suspicion, Token, short_digest_of
from isocast.wire.token_body import token_digest

__all__ = ["Event", "StateDriver"]

_WAKES_MAX = 16
"""Deadlines that pass before a node is taken to have nothing more to say by itself."""
_DETECT_NS = 1_000
_CLOCK_NS = 14_000
"""Between the ballots of two servers by their clocks: more than three token periods, so that no ring starts in the
past of one that it replaces."""
_HORIZON_NS = 1 << 40
"""No clock goes beyond this."""


class Event(IntEnum):
    """What can happen beside the arrival of a letter, whose number follows these."""

    TIME = 0
    """The clock goes on until the node does something that others or its disk can see."""
    BALLOT = 1
    """A server begins a ballot, for whatever reason."""
    RESTART = 2
    """The process dies and comes back from its disk."""
    SHORTER = 3
    """It comes back with a log that lost its newest token."""
    BLANK = 4
    """It comes back without its disk."""
    LATER = 5
    """As TIME, in a node that has cast already the vote that it would cast first."""
    LETTER = 6
    """LETTER+n: letter n arrives."""
    VOTES = 1 << 32
    """VOTES+c: a server counts the votes of choice c of the mail, and decides."""


class StateDriver:
    """Takes a node from one state to the next; `None` where the bounds or the node say that nothing happens."""

    def __init__(self, bounds: Bounds, build: Build, mail: Mail) -> None:
        """For the nodes of one market."""
        self.bounds = bounds
        self.build = build
        self.mail = mail
        self.timing = HastyTiming(detect_ns=_DETECT_NS, process_ns=_DETECT_NS, retries_max=1, ring_size=bounds.sites)
        self.settings = RingSettings(self.timing)
        self.universe = tuple(range(1, bounds.sites + 1))
        self.observe: Callable[[Local, Effect], None] | None = None
        """Told of every effect; for explanations of a trace."""
        self.messages: dict[NodeId, list[Packet]] = {}
        """By site: what waits there from the start, in the order in which it came."""
        self.chain: dict[bytes, bytes] = {}
        """Of every token that anybody completed: its digest, and that of the token before."""
        self.durable = False
        """Whether the time that passed last ended with something durable or final."""
        self._beyond = False

    # Nodes --------------------------------------------------------------------------------------

    def blank(self, node: NodeId) -> Local:
        """A node that just came to life."""
        disk: SiteState | ServerState | OutboxState
        if is_site(node):
            disk = SiteState(Checkpoint(universe=self.universe))
        else:
            disk = ServerState() if is_server(node) else OutboxState()
        return Local(node, self.machine(node, disk), disk)

    def machine(
        self, node: NodeId, disk: SiteState | ServerState | OutboxState, *, forgot: bool = False
    ) -> PrimaryReceiver | ReformationServer | PrimarySource:
        """A machine made from what the disk says."""
        match disk:
            case SiteState():
                secret = short_digest_of(f"{node}".encode())
                return self.build.receiver(node, self.settings, secret, disk, forgot=forgot)
            case ServerState():
                return self.build.server(node, self.settings, 0, {}, disk)
            case OutboxState():
                return self.build.source(node, self.settings, disk)

    # Events -------------------------------------------------------------------------------------

    def after(self, before: Local, event: int, copy: Local | None = None) -> Local | None:
        """What the node is after an event; None if it cannot happen. A `copy` that is at hand becomes the result."""
        local = before.copy() if copy is None else copy
        self._beyond = False
        match event:
            case Event.TIME:
                happened = self._pass_time(local)
            case Event.BALLOT:
                happened = self._begin_ballot(local)
            case Event.RESTART | Event.SHORTER | Event.BLANK:
                happened = self._restart(local, Event(event))
            case _ if event >= Event.VOTES:
                happened = self._count_votes(local, event - Event.VOTES)
            case _:
                self.receive(local, self.mail.letters[event - Event.LETTER].packet)
                happened = True
        if not happened or self._beyond:
            return None
        self.relax(local)
        self._judge(before, local)
        return local

    def relax(self, local: Local) -> None:
        """Take the rate limits away (see `relaxation`)."""
        if isinstance(local.machine, PrimaryReceiver):
            relax_site(local.machine, local.now)
        elif isinstance(local.machine, ReformationServer):
            relax_server(local.machine, local.now)

    def receive(self, local: Local, packet: Packet) -> None:
        """A packet arrives; a token of the node's own epoch not before its instant."""
        token = packet.item if isinstance(packet, Repair) else packet
        machine = local.machine
        if (
            isinstance(token, Token)
            and isinstance(machine, PrimaryReceiver)
            and token.epoch == machine.receiver.accepted
        ):
            local.now = max(local.now, token.instant)
        self.step(local, PacketsArrived((packet,)))

    def _pass_time(self, local: Local) -> bool:
        """Wake the node at its deadlines until it shows something new."""
        if isinstance(local.machine, PrimarySource):
            return False
        sent = local.sent
        for _ in range(_WAKES_MAX):
            if isinstance(local.machine, ReformationServer):
                self.relax(local)
            local.now = max(local.now, min(local.machine.next_deadline(), _HORIZON_NS))
            if isinstance(local.machine, PrimaryReceiver):
                hear_all(local.machine, local.now)
            self.durable = self.step(local, TimerFired())
            if self._beyond:
                return False
            if self.durable or local.sent != sent:
                return True
        return False

    def _count_votes(self, local: Local, choice: int) -> bool:
        """Some of the votes for a server's ballot, and then its decision."""
        decided = len(local.memory.rings)
        for packet in self.mail.packets(self.mail.choices[choice]):
            self.receive(local, packet)
        if len(local.memory.rings) == decided:
            self._pass_time(local)
        return len(local.memory.rings) > decided

    def _begin_ballot(self, local: Local) -> bool:
        """Suspicion by a member of the ring, and then the server's turn."""
        server = local.machine
        if not isinstance(server, ReformationServer) or server.ring is None:
            return False
        if local.memory.ballots >= self.bounds.ballots:
            return False
        rounds, rank = server.snapshot().ballot.number - 1, server.server - server_id(1)
        local.now = max(local.now, _CLOCK_NS * (rounds * self.bounds.servers + rank + 1))
        ballot = server.ring.ballot
        suspect = Suspect(0, ballot, server.ring.ring[0], 0, server.ring.ring[0], Suspicion.LATE, ballot)
        self.step(local, PacketsArrived((suspect,)))
        return self._pass_time(local)

    def _restart(self, local: Local, event: Event) -> bool:
        """Lose everything volatile, and what the event says of the disk."""
        disk, memory = local.disk, local.memory
        if isinstance(disk, OutboxState) or (event is not Event.RESTART and not isinstance(disk, SiteState)):
            return False
        memory.restarts += event is Event.RESTART
        if isinstance(disk, SiteState) and event is not Event.RESTART:
            if event is Event.SHORTER and not disk.entries:
                return False
            memory.shorter_logs += event is Event.SHORTER
            memory.lost_disks += event is Event.BLANK
            memory.forgot = True
            memory.journals = (*memory.journals, ())
            if event is Event.SHORTER and self.build.remembers_nothing:
                del disk.entries[disk.held]
                disk.released = min(disk.released, disk.held)
            else:
                # The product's store hands out nothing of a log whose end may be missing.
                disk = SiteState(Checkpoint(universe=self.universe))
        local.disk = disk
        forgot = memory.forgot and not self.build.remembers_nothing
        local.machine = self.machine(local.node, disk, forgot=forgot)
        self.refill(local)
        return True

    def refill(self, local: Local) -> None:
        """Bring a site the messages that wait from the start: their sources send them until they are stable."""
        for packet in self.messages.get(local.node, ()):
            self.step(local, PacketsArrived((packet,)))

    # Steps --------------------------------------------------------------------------------------

    def step(self, local: Local, event: Ordinary) -> bool:
        """One step of the machine; whether anything durable or final came of it."""
        return self.perform(local, local.machine.step(event, local.now))

    def perform(self, local: Local, effects: tuple[Effect, ...]) -> bool:
        """The effects of a step; whether anything durable or final came of them."""
        durable = False
        for effect in effects:
            durable |= self._perform(local, effect)
            if self.observe is not None:
                self.observe(local, effect)
        return durable

    def _perform(self, local: Local, effect: Effect) -> bool:
        match effect:
            case Multicast(packet):
                self._send(local, packet, None)
            case Unicast(to, packet):
                self._send(local, packet, to)
            case Persist(record):
                local.disk.apply(record)
                self._note(local, record)
                return True
            case Release():
                self._release(local, effect)
                return True
            case ReadJournal(to, first, last):
                if isinstance(local.machine, PrimaryReceiver) and isinstance(local.disk, SiteState):
                    read = JournalRead(to, local.disk.read(first, last))
                    self.perform(local, local.machine.step(read, local.now))
            case EntryCompleted():
                self.chain[effect.digest] = effect.entry.token.prev_digest
                self._hold(local)
            case _:
                pass
        return False

    def _send(self, local: Local, packet: Packet, to: NodeId | None) -> None:
        machine = local.machine
        if isinstance(packet, Token) and packet.token_number > self.bounds.tokens:
            self._beyond = True
            return
        if isinstance(packet, NewRing) and packet.sender != local.node:
            # A copy of what its server sent to everybody.
            return
        if isinstance(packet, Nack | RangeRequest) and isinstance(machine, PrimaryReceiver):
            late = packet.epoch == machine.receiver.accepted
            last = packet.token_number if isinstance(packet, Nack) else packet.last
            if late and not (self.bounds.requests and last <= self.bounds.tokens):
                return
        if isinstance(packet, Token) and packet.sender == local.node:
            self._issue(local, packet)
        if to is None:
            local.sent |= self.mail.multicast(local.node, packet)
        else:
            local.sent |= self.mail.unicast(local.node, packet, to)

    # What is remembered -------------------------------------------------------------------------

    def _note(self, local: Local, record: Record) -> None:
        memory = local.memory
        match record:
            case BallotChosen():
                memory.ballots += 1
                self._beyond |= memory.ballots > self.bounds.ballots
            case RingDecided(ring):
                cut = (ring.ballot, ring.cut_epoch, ring.cut_token, ring.cut_digest)
                if any(known[0] == ring.ballot and known != cut for known in memory.rings):
                    memory.flaw = (title("S5"), f"{describe(local.node)} decided {ring.ballot} twice")
                memory.rings = (*memory.rings, cut)
            case RingInstalled():
                self._hold(local)
            case PromiseMade() | EntryAppended() | LogReplaced() | OutboxAppended() | OutboxFreed():
                pass
            case _:
                assert_never(record)

    def _hold(self, local: Local) -> None:
        """How far a site holds the log while it takes part in an epoch."""
        machine = local.machine
        if not isinstance(machine, PrimaryReceiver):
            return
        receiver = machine.receiver
        if receiver.accepted != receiver.promised or receiver.accepted == NO_EPOCH:
            return
        known = {epoch: (epoch, held, digest) for epoch, held, digest in local.memory.holdings}
        before = known.get(receiver.accepted)
        if before is None or receiver.held > before[1]:
            known[receiver.accepted] = (receiver.accepted, receiver.held, receiver.ledger.digest)
            local.memory.holdings = tuple([known[epoch] for epoch in sorted(known)])

    @staticmethod
    def _issue(local: Local, token: Token) -> None:
        """A token of the site's own goes out."""
        memory, content = local.memory, (token.epoch, token.token_number, token_digest(token))
        if any(known[:2] == content[:2] and known != content for known in memory.issued):
            what = f"{describe(local.node)} sent two contents of token {token.token_number} of epoch {token.epoch}"
            memory.flaw = (title("S5"), what)
        elif content not in memory.issued:
            memory.issued = (*memory.issued, content)

    def _release(self, local: Local, effect: Release) -> None:
        """The journal grows."""
        if isinstance(local.disk, SiteState):
            local.disk.release(effect)
        *old, journal = local.memory.journals
        labels = tuple([f"{describe(message.sender)}/{message.number}" for message in effect.messages])
        if effect.first_sequence != len(journal) + 1:
            what = f"{describe(local.node)} released sequence {effect.first_sequence} after {len(journal)}"
            local.memory.flaw = (title("S2"), what)
        local.memory.journals = (*old, (*journal, *labels))

    def _judge(self, before: Local, after: Local) -> None:
        """Check for what a node must never do, independent of all other nodes."""
        if not isinstance(after.machine, PrimaryReceiver) or not isinstance(before.machine, PrimaryReceiver):
            return
        old, new, memory = before.machine.receiver, after.machine.receiver, after.memory
        who = describe(after.node)
        if not memory.forgot and (new.promised < old.promised or new.accepted < old.accepted):
            memory.flaw = (title("S7"), f"{who} went back from {old.promised} to {new.promised}")
        journal = memory.journals[-1]
        log = [
            f"{describe(message.sender)}/{message.number}"
            for number in sorted(new.ledger.entries)
            for message in new.ledger.entries[number].messages
        ]
        if not memory.forgot and not new.ledger.collected and tuple(log[: len(journal)]) != journal:
            memory.flaw = (title("S1"), f"{who} cut back what it had released")
