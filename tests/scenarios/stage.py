"""Stories on the pure machines: no network, no chance; the text says who hears what.

A transcript is a list of steps. A step is a few commands, `----`, and what the machines did:

    sites 3                    sites r1, r2, r3, server x1 and sources s1, s2; the first ring starts at T1
    publish s1                 a client hands a batch to a source
    at T2+22ms                 let time pass to this instant of the first ring; whoever wants to be woken is woken
    run T5                     let time pass, and let every packet arrive at the instant at which it is sent
    deliver r2 token 1         the copy for r2 of this packet arrives (the first words of it suffice)
    deliver r2                 every copy that is under way to r2 arrives
    deliver all                every copy that is under way arrives, and what follows from that too
    lose r2 token 1            as deliver, but the copy is lost
    cut r1 / heal r1           nothing passes to or from r1 from now on, or everything again
    crash r1 / restart r1      everything volatile is lost; back with what the disk kept
    hide receipt ...           do not tell packets of these kinds

Run `python -m tests.scenarios.stage FILE...` to write what the machines do into the files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.server import ReformationServer, ServerState
from isocast.ring.effects import (
    BallotChosen,
    Collect,
    EntryCompleted,
    FairnessFaulted,
    Multicast,
    OutboxFreed,
    Persist,
    PromiseMade,
    PublishAccepted,
    PublishRejected,
    ReadJournal,
    Release,
    RingDecided,
    RingInstalled,
    RingSuspected,
    Unicast,
)
from isocast.ring.inputs import JournalRead, Machine, PacketsArrived, PublishRequested, TimerFired
from isocast.ring.ledger import Checkpoint
from isocast.ring.settings import RingSettings
from isocast.ring.source import OutboxState, PrimarySource
from isocast.ring.storage import SiteState
from isocast.ring.token import nonce
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId, is_server, is_source, server_id, source_id
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.timing import Timing
from isocast.wire.codec import decode, encode
from isocast.wire.frame import AUDIENCE, Role
from isocast.wire.packets import (
    NO_DIGEST,
    Data,
    Holding,
    Invite,
    Join,
    Nack,
    NewRing,
    Packet,
    Pending,
    RangeReply,
    RangeRequest,
    Receipt,
    Refuse,
    Repair,
    Standing,
    Suspect,
    Token,
    short_digest_of,
)

__all__ = ["Stage", "play"]

TIMING = Timing(detect_ns=20 * MILLISECOND, process_ns=4 * MILLISECOND, retries_max=2, clock_error_ns=MILLISECOND)
START = SECOND


def name(node: NodeId) -> str:
    """r1, x1, s1."""
    if is_source(node):
        return f"s{node >> 32}"
    return f"x{node - server_id(0)}" if is_server(node) else f"r{node}"


def node_of(word: str) -> NodeId:
    """The node of a name."""
    number = int(word[1:])
    return {"r": number, "x": server_id(number), "s": source_id(number)}[word[0]]


def clock(instant: int) -> str:
    """An instant, by the tokens of the first ring."""
    token, rest = divmod(instant - START, TIMING.token_period_ns)
    late = f"+{rest / MILLISECOND:g}ms" if rest else ""
    return f"T{token + 1}{late}"


def labels(messages: Sequence[Data]) -> str:
    return " ".join([f"{name(held.sender)}/{held.number}" for held in messages]) or "nothing"


def listed(holdings: tuple[Holding, ...]) -> str:
    found = [
        f"{name(held.source)}/{held.first + bit}"
        for held in holdings
        for bit in range(held.bitmap.bit_length())
        if held.bitmap >> bit & 1
    ]
    return " ".join(found) or "nothing"


def sites(nodes: Sequence[NodeId]) -> str:
    return " ".join([name(node) for node in nodes]) or "nobody"


def describe(packet: Packet) -> str:
    """A packet in a few words, its kind first."""
    match packet:
        case Data():
            return f"data {name(packet.sender)}/{packet.number}"
        case Token():
            runs = [f"{name(run.source)}/{run.first}-{run.first + run.count - 1}" for run in packet.runs]
            stable = f" stable {packet.stable}" if packet.stable else ""
            return f"token {packet.token_number} of {packet.epoch}: {' '.join(runs) or 'nothing'}{stable}"
        case Receipt():
            return f"receipt {packet.held} of {packet.epoch}"
        case Nack():
            what = "lacks" if packet.has_token else "holds"
            return f"nack {packet.token_number} of {packet.epoch}, {what} {listed(packet.listed)}"
        case Repair():
            return f"repair {describe(packet.item)}"
        case Pending():
            return f"pending {packet.token_number}"
        case Standing():
            return f"standing: next is {name(packet.source)}/{packet.next_number}"
        case Suspect():
            return f"suspect {name(packet.suspect)} {packet.reason}"
        case Invite():
            return f"invite {packet.ballot}"
        case Refuse():
            return f"refuse {packet.ballot}, promised {packet.promised}, holds {packet.held}"
        case Join():
            return f"join {packet.ballot} with {packet.held} of {packet.epoch}, heard {sites(packet.heard)}"
        case NewRing():
            return f"newring {packet.ballot}"
        case RangeRequest():
            return f"range {packet.first}..{packet.last}"
        case RangeReply():
            return f"range-reply up to {packet.last}"
        case _:
            raise AssertionError(packet)


def secret(site: NodeId) -> bytes:
    return short_digest_of(b"stage", site.to_bytes(8))


class Stage:
    """Machines, disks and packets under way."""

    def __init__(self) -> None:
        """Nobody is there yet."""
        self.now = 0
        self.machines: dict[NodeId, PrimaryReceiver | PrimarySource | ReformationServer] = {}
        self.disks: dict[NodeId, SiteState | OutboxState | ServerState] = {}
        self.under_way: list[tuple[NodeId, NodeId, Packet]] = []
        self.told: list[str] = []
        self.hidden: tuple[str, ...] = ()
        self.cut_off: dict[NodeId, None] = {}
        self._published = 0
        self._settings = RingSettings(TIMING, window=8)

    # Commands -----------------------------------------------------------------------------------

    def command(self, line: str) -> None:
        """Do what one line says."""
        verb, *words = line.split()
        match verb, words:
            case "sites", [count]:
                self._begin(int(count))
            case "publish", [source]:
                self.publish(node_of(source))
            case "at", [instant]:
                self.pass_time(self._instant(instant))
            case "run", [instant]:
                self.pass_time(self._instant(instant), deliver=True)
            case "deliver", ["all"]:
                self.deliver_all()
            case "deliver", [to, *what]:
                for copy in self._copies(node_of(to), " ".join(what)):
                    self.deliver(*copy)
            case "lose", [to, *what]:
                self._copies(node_of(to), " ".join(what))
            case "cut", [node]:
                self.cut_off[node_of(node)] = None
                self.under_way = [copy for copy in self.under_way if node_of(node) not in copy[:2]]
            case "heal", [node]:
                del self.cut_off[node_of(node)]
            case "crash", [node]:
                del self.machines[node_of(node)]
                self.under_way = [copy for copy in self.under_way if copy[0] != node_of(node)]
            case "restart", [node]:
                self.boot(node_of(node))
            case "hide", kinds:
                self.hidden = tuple(kinds)
            case _:
                raise ValueError(line)

    def _begin(self, count: int) -> None:
        universe = tuple(range(1, count + 1))
        epoch = Epoch(1, server_id(1))
        commits = tuple([short_digest_of(nonce(secret(site), epoch, 0)) for site in universe])
        server = server_id(1)
        ring = NewRing(
            0, epoch, server, epoch, universe, 1, 1, START, NO_EPOCH, 0, NO_DIGEST, universe, commits, universe, ()
        )  # fmt: skip
        for site in universe:
            self.disks[site] = SiteState(Checkpoint(universe=universe), promised=epoch, ring=ring)
        self.disks[server_id(1)] = ServerState(epoch, ring)
        for number in (1, 2):
            self.disks[source_id(number)] = OutboxState()
        self.now = START - 50 * MILLISECOND
        for node in self.disks:
            self.boot(node)

    def boot(self, node: NodeId) -> None:
        disk = self.disks[node]
        machine: PrimaryReceiver | PrimarySource | ReformationServer
        match disk:
            case SiteState():
                machine = PrimaryReceiver(node, self._settings, secret(node), disk)
            case OutboxState():
                machine = PrimarySource(node, self._settings, disk)
            case ServerState():
                machine = ReformationServer(node, self._settings, 0, {}, disk)
        self.machines[node] = machine
        self._step(node, TimerFired())

    def publish(self, source: NodeId) -> None:
        self._published += 1
        self._step(source, PublishRequested(str(self._published).encode(), f"batch {self._published}".encode()))

    def _instant(self, text: str) -> int:
        found = re.fullmatch(r"T(\d+)(?:([+-]\d+)ms)?", text)
        if found is None:
            raise ValueError(text)
        return START + (int(found[1]) - 1) * TIMING.token_period_ns + int(found[2] or 0) * MILLISECOND

    def pass_time(self, until: int, *, deliver: bool = False) -> None:
        """Wake everybody at their deadlines up to an instant, in the order of time and then of nodes."""
        while True:
            if deliver:
                self.deliver_all()
            due, node = min([(machine.next_deadline(), node) for node, machine in self.machines.items()])
            if due > until:
                break
            self.now = max(self.now, due)
            self._step(node, TimerFired())
        self.now = max(self.now, until)

    # Packets ------------------------------------------------------------------------------------

    def _copies(self, to: NodeId, what: str) -> list[tuple[NodeId, NodeId, Packet]]:
        """Take the first matching copy for a node from what is under way; all of its copies without a text."""
        found = [copy for copy in self.under_way if copy[0] == to and describe(copy[2]).startswith(what)]
        if not found:
            raise LookupError(f"nothing is under way to {name(to)} that begins with {what!r}")
        found = found if not what else found[:1]
        for copy in found:
            self.under_way.remove(copy)
        return found

    def deliver_all(self) -> None:
        while self.under_way:
            self.deliver(*self.under_way.pop(0))

    def deliver(self, to: NodeId, _: NodeId, packet: Packet) -> None:
        if to in self.machines:
            self._step(to, PacketsArrived((packet,)))

    def _send(self, sender: NodeId, to: Sequence[NodeId], packet: Packet) -> None:
        travelled = decode(encode(packet))
        if sender not in self.cut_off:
            here = [node for node in to if node != sender and node not in self.cut_off and node in self.machines]
            self.under_way.extend([(node, sender, travelled) for node in here])

    def _audience(self, packet: Packet) -> list[NodeId]:
        roles = {Role.RECEIVER: SiteState, Role.SOURCE: OutboxState, Role.SERVER: ServerState}
        kinds = tuple([roles[role] for role in AUDIENCE[type(packet)]])
        return [node for node, disk in self.disks.items() if isinstance(disk, kinds)]

    # Effects ------------------------------------------------------------------------------------

    def _step(self, node: NodeId, event: object) -> None:
        machine: Machine[Any, object] = self.machines[node]
        for effect in machine.step(event, self.now):
            self._perform(node, effect)

    def _tell(self, node: NodeId, text: str) -> None:
        self.told.append(f"{name(node)} {text}")

    def _tell_packet(self, node: NodeId, to: str, packet: Packet) -> None:
        text = describe(packet)
        if not text.startswith(self.hidden or ("\0",)):
            self._tell(node, f"-> {to}: {text}")

    def _perform(self, node: NodeId, effect: object) -> None:
        match effect:
            case Multicast(packet):
                self._tell_packet(node, "all", packet)
                self._send(node, self._audience(packet), packet)
            case Unicast(to, packet):
                self._tell_packet(node, name(to), packet)
                self._send(node, (to,), packet)
            case Persist(record):
                self.disks[node].apply(record)
                self._tell_record(node, record)
            case EntryCompleted(_, entry, _):
                self._tell(node, f"holds token {entry.token.token_number}: {labels(entry.messages)}")
            case Release():
                disk = self.disks[node]
                assert isinstance(disk, SiteState)
                disk.release(effect)
                last = effect.first_sequence + len(effect.messages) - 1
                when = f"{clock(self.now)}, due {clock(effect.due)}" if self.now != effect.due else clock(self.now)
                self._tell(node, f"releases {effect.first_sequence}..{last} at {when}: {labels(effect.messages)}")
            case FairnessFaulted(number):
                self._tell(node, f"cannot release token {number} at its instant")
            case Collect(number):
                self._tell(node, f"drops tokens up to {number}")
            case RingSuspected(number, suspect, reason):
                self._tell(node, f"suspects {name(suspect)} over token {number}: {reason}")
            case ReadJournal(to, first, last):
                disk = self.disks[node]
                assert isinstance(disk, SiteState)
                self._step(node, JournalRead(to, disk.read(first, last)))
            case PublishRejected(_, reason):
                self._tell(node, f"refuses a batch: {reason}")
            case PublishAccepted():
                pass
            case _:
                raise AssertionError(effect)

    def _tell_record(self, node: NodeId, record: object) -> None:
        match record:
            case PromiseMade(ballot):
                self._tell(node, f"promises {ballot}")
            case RingInstalled(ring, keep, suffix):
                self._tell(node, f"enters {ring.ballot}: keeps {keep}, adds {len(suffix)}")
            case BallotChosen(ballot):
                self._tell(node, f"calls ballot {ballot}")
            case RingDecided(ring):
                cut = f"cut {ring.cut_token} of {ring.cut_epoch}, token {ring.first_token} at {clock(ring.start)}"
                self._tell(node, f"decides {ring.ballot}: ring {sites(ring.ring)}, {cut}")
            case OutboxFreed(base):
                self._tell(node, f"frees everything below {base}")
            case _:
                pass


def play(text: str) -> str:
    """The transcript with what the machines do now in the place of what the text says."""
    stage = Stage()
    steps: list[str] = []
    for block in re.split(r"\n\n+", text.strip()):
        commands = block.partition("----")[0].strip()
        stage.told.clear()
        for line in commands.splitlines():
            if not line.startswith("#"):
                stage.command(line)
        steps.append("\n".join([commands, "----", *(stage.told or ["(nothing)"])]))
    return "\n\n".join(steps) + "\n"


if __name__ == "__main__":
    for file in sys.argv[1:]:
        path = Path(file)
        path.write_text(play(path.read_text(encoding="utf-8")), encoding="utf-8")
