"""What must hold in every state that is reached, the bounds of a search, and the mutants that it must find.

Memories only grow, so that whatever two nodes ever did is still there when the later one of them has done it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from isocast.checks.properties import title
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.reformation.forming import Planned
from isocast.reformation.server import ReformationServer
from isocast.reformation.votes import VotedClocks
from isocast.ring.receiver import Mode, Receiver
from isocast.ring.settings import Schedule
from isocast.simulation.exploration.node import Memory
from isocast.simulation.mutants import MUTANTS, Mutant
from isocast.simulation.world import Build
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId, describe
from isocast.terms.instants import NEVER
from isocast.terms.timing import Timing
from isocast.wire.packets import Join, Token

__all__ = [
    "AGREEMENT",
    "CERTIFIED",
    "FOUND_AT",
    "RULES",
    "Bounds",
    "HastyTiming",
    "Properties",
    "hear_all",
    "relax_server",
    "relax_site",
]


# How much of a market is explored: the bounds that make "all interleavings" a finite number.


@dataclass(frozen=True, slots=True)
class Bounds:
    """One configuration of the model checker."""

    sites: int = 3
    """Primary receivers: U."""
    servers: int = 2
    """Reformation servers, whose ballots race."""
    tokens: int = 1
    """The highest token number that anybody issues, in any epoch."""
    ballots: int = 1
    """Ballots that each server begins, beside the one that formed the first ring."""
    restarts: int = 0
    """How often, over all nodes, a process dies and comes back from its disk."""
    shorter_logs: int = 0
    """How often one comes back with a log that lost its newest token."""
    lost_disks: int = 0
    """How often one comes back without its disk."""
    more_votes: bool = True
    """Whether a server may also wait for more votes than a majority of U."""
    flying: bool = False
    """Whether messages still travel when the search begins, instead of waiting at every site in another order."""
    requests: bool = False
    """Whether receivers also ask for what is late; without, whatever was sent may simply come later."""
    rivals: bool = False
    """Whether servers hear tokens, refusals and one another; without, each only counts the votes for its ballots."""
    sources: bool = False
    """Whether sources hear tokens and rings and send again; without, what they sent may come at any time, and again."""
    eager: bool = True
    """Whether receipts and requests that are of use arrive at once (a reduction; see `market`)."""
    gathered_votes: bool = True
    """Whether a server counts its votes at the moment of its decision (a reduction; see `market`)."""
    dead_votes: bool = True
    """Whether states are one that differ in nothing but votes to servers which count none any more (see `sweep`)."""


class HastyTiming(Timing):
    """Times of a ring that releases as soon as its gate allows: what is unsafe at any Δ_A is unsafe at 0."""

    __slots__ = ()

    @property
    def minimum_release_delay_ns(self) -> int:
        """Nothing."""
        return 0


AGREEMENT, CERTIFIED = title("S1"), title("S9")


class Properties:
    """Judges tuples of memories; each distinct one once."""

    def __init__(self, bounds: Bounds, chain: Mapping[bytes, bytes], *, stories_only: bool = False) -> None:
        """`chain` gives the digest before a token's; `stories_only`: look for two different stories alone."""
        self._stories_only = stories_only
        self._chain = chain
        self._need = bounds.sites // 2 + 1
        self._memories: list[Memory] = []
        self._numbers: dict[str, int] = {}
        self._judged: dict[tuple[int, ...], tuple[str, str] | None] = {}

    def number(self, memory: Memory) -> int:
        """One number for equal memories."""
        key = repr(memory)
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self._memories)
            self._memories.append(memory)
        return known

    def broken(self, numbers: tuple[int, ...]) -> tuple[str, str] | None:
        """The first property that these memories, one for each node, break together; and how."""
        try:
            return self._judged[numbers]
        except KeyError:
            verdict = self._judged[numbers] = self._judge([self._memories[number] for number in numbers])
            return verdict

    def _judge(self, memories: list[Memory]) -> tuple[str, str] | None:
        stories = _two_stories(memories)
        if stories is not None or self._stories_only:
            return stories
        for memory in memories:
            if memory.flaw is not None:
                return memory.flaw
        return self._forgotten(memories)

    def _forgotten(self, memories: list[Memory]) -> tuple[str, str] | None:
        """A ring that lacks what a majority held in an epoch below it."""
        held: dict[Epoch, list[tuple[int, bytes]]] = {}
        for memory in memories:
            for epoch, number, digest in memory.holdings:
                held.setdefault(epoch, []).append((number, digest))
        for memory in memories:
            for ballot, _, cut, digest in memory.rings:
                for epoch, holdings in held.items():
                    level = sorted([number for number, _ in holdings], reverse=True)[self._need - 1 : self._need]
                    if epoch < ballot and level and not self._covers(cut, digest, level[0], holdings):
                        what = f"the ring of {ballot} begins after token {cut} and lacks token {level[0]}"
                        return CERTIFIED, f"{what}, which a majority held in epoch {epoch}"
        return None

    def _covers(self, cut: int, digest: bytes, level: int, holdings: list[tuple[int, bytes]]) -> bool:
        """Whether the log that ends with the cut has token `level` as its holders have it."""
        if cut < level:
            return False
        wanted = {self._down(number, end, level) for number, end in holdings if number >= level}
        return self._down(cut, digest, level) in wanted

    def _down(self, number: int, digest: bytes, level: int) -> bytes:
        """The chained digest at `level` of the log that ends with this one."""
        while number > level:
            number, digest = number - 1, self._chain[digest]
        return digest


def _two_stories(memories: list[Memory]) -> tuple[str, str] | None:
    told = [(place + 1, journal) for place, memory in enumerate(memories) for journal in memory.journals if journal]
    for (one, first), (other, second) in combinations(told, 2):
        for sequence, (here, there) in enumerate(zip(first, second, strict=False), 1):
            if here != there:
                what = f"sequence {sequence} is {here} at {describe(one)} and {there} at {describe(other)}"
                return AGREEMENT, what
    return None


# What a machine does only so often, it may here do at any time.
#
# Rate limits, counters of retries and instants of the next attempt make a machine send less, never something else.
# Taking them away gives machines that send everything which the product may send, and more of it; since any packet may
# also be lost, what is safe here is safe there. It leaves far fewer states, because nothing remembers when it last
# asked. Every name here must exist: a machine that lost one stops the search.


_NEVER_AUDITED = 1 << 40
"""A token that is never due: audits only suspect, and here a ballot needs no suspicion."""


def _put(owner: object, **values: Any) -> None:  # noqa: ANN401 (whatever the field holds)
    for name, value in values.items():
        if not hasattr(owner, name):
            raise AttributeError(f"{type(owner).__name__} has no field {name}: the relaxation is out of date")
        setattr(owner, name, value)


def _sort(owner: object, *names: str) -> None:
    """Order these dictionaries by key: nothing depends on who came first."""
    for name in names:
        table = getattr(owner, name)
        if len(table) > 1:
            ordered = sorted(table.items())
            table.clear()
            table.update(ordered)


def hear_all(site: PrimaryReceiver, now: int) -> None:
    """Have heard everybody just now: who hears whom decides who is on a ring, and here any ring may come."""
    _put(site.member, _heard=dict.fromkeys(site.receiver.ledger.universe, now))


def relax_site(site: PrimaryReceiver, now: int) -> None:
    """Forget when things were last done."""
    receiver, member = site.receiver, site.member
    _put(site, _deadline=now)
    hear_all(site, now)
    _put(member, _silences=0, _repeated=False, _invited=0, _next_at=now)
    fetch = getattr(member, "_fetch")  # noqa: B009 (a field of another room)
    _put(fetch, _asked=None, progressed=False)
    _put(member, _refused_at={}, _complained_at=-NEVER, _joined_at=-NEVER)
    _put(receiver, conflicts=0, _told_at={}, _reminded={}, _receipt_at=NEVER, _audited=_NEVER_AUDITED)
    _put(receiver, _deadline=NEVER, _last_now=now)
    _put(receiver.ledger, dropped=0)
    _put(receiver.releaser, _faulted=receiver.releaser.released)
    answered = getattr(receiver.answering, "_answered")  # noqa: B009 (a field of another room)
    _put(answered, _span=0, _requests=set(), _packets={})
    recovery = getattr(receiver, "_recovery")  # noqa: B009
    if recovery is not None:
        _put(recovery, _attempts={}, _range=None, _range_held=-1, behind=False)
    _sort(receiver.certificates, "receipts")
    _sort(receiver.ledger, "next_number")
    _sort(receiver.issuer, "_commits")
    _sort(receiver.reports, "by_head")


def relax_server(server: ReformationServer, now: int) -> None:
    """Forget whom it told what, whom it bars, and whose clock shows what.

    Its grace and its patience may end at any time. Votes are looked at in the order of their sites.
    """
    _put(server, _told_at={}, _excused={}, _alive={}, _accused={}, _barred={}, _faltered={})
    _put(server, _planned=Planned(), _asked_at=-NEVER, _last_now=now)
    _put(server, _voted=VotedClocks(), _trial=NO_EPOCH, _borne=True, _fruitless={}, clock_ahead_ns=0)
    if server.next_deadline() < NEVER:
        _put(server, _next_at=now)
    ballot = getattr(server, "_ballot")  # noqa: B009
    if ballot is not None:
        _sort(ballot, "votes")
        if ballot.decide_at < NEVER:
            _put(ballot, decide_at=now)


# The rules of reformation, switched off one at a time: the mutants that the model checker must find.
#
# Four of them are the swarm's; the others give up several rules at once, as somebody would who stops half-way between
# the paper and the protocol page. Nothing in the product's configuration reaches any of them.


class _ReleasingReceiver(Receiver):
    """§5: what is held is released when its instant has come."""

    def may_release(self, token_number: int) -> bool:
        return token_number <= self.held


class _TimedSite(PrimaryReceiver):
    receiver_class = _ReleasingReceiver


class _AnyServer(ReformationServer):
    """§4.3: all that answer make up the ring, which goes on after the highest token that any of them has."""

    @staticmethod
    def cut_key(vote: Join) -> tuple[Any, ...]:
        return (vote.held,)

    @staticmethod
    def enough(count: int, universe: tuple[NodeId, ...]) -> bool:  # noqa: ARG004
        return count >= 1


class _LiteralReceiver(_ReleasingReceiver):
    """The paper has no epochs: a token is taken from the owner that is due, and an invitation seals no site."""

    def accepts(self, epoch: Epoch) -> bool:  # noqa: ARG002
        return True

    @property
    def mode(self) -> Mode:
        return Mode.NORMAL if self.ring is not None else Mode.SEALED

    def _doubt_clock(self, token: Token, schedule: Schedule) -> None:
        """Nor does it doubt clocks."""


class _LiteralSite(PrimaryReceiver):
    receiver_class = _LiteralReceiver


def _mutant(name: str, rule: str, build: Build) -> Mutant:
    return Mutant(name, rule, 0, build)


RULES: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        _mutant(
            "paper-literal",
            "epochs fence old tokens off, a majority of U starts one, its cut is the greatest (e_acc, h),"
            " and a release waits for its gate",
            Build(receiver=_LiteralSite, server=_AnyServer),
        ),
        _mutant(
            "epochs-only",
            "a majority of U starts an epoch, its cut is the greatest (e_acc, h), and a release waits for its gate",
            Build(receiver=_TimedSite, server=_AnyServer),
        ),
        MUTANTS["release-on-time-alone"],
        MUTANTS["greatest-held"],
        MUTANTS["half-is-enough"],
        MUTANTS["vote-without-disk"],
    )
}
"""By name: the six that the protocol page names."""

FOUND_AT: dict[str, Bounds] = {
    "paper-literal": Bounds(servers=1, tokens=1),
    "epochs-only": Bounds(servers=1, tokens=1),
    "release-on-time-alone": Bounds(servers=1, tokens=1),
    "greatest-held": Bounds(tokens=1, more_votes=False),
    "half-is-enough": Bounds(servers=1, tokens=1),
    "vote-without-disk": Bounds(servers=1, tokens=1, lost_disks=1, more_votes=False),
}
"""Bounds within which each tells two stories; as small as they can be, so that a trace is short to read."""
