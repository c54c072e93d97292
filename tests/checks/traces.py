"""Traces to judge: a ring of three on which everything goes well, and ways to change a trace."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from isocast.checks.edge import EdgeChecker
from isocast.checks.facts import (
    Collected,
    Completed,
    Crashed,
    Fact,
    Faulted,
    Installed,
    Promised,
    ReceiptSent,
    Released,
    Report,
    Restarted,
    Submitted,
    Suspected,
    TokenSent,
)
from isocast.checks.narrow import NarrowChecker
from isocast.checks.suite import EndOfRun, Law, Suite
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId, server_id, source_id
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.timing import Timing
from isocast.wire.packets import NO_DIGEST, Data, NewRing, Suspicion, digest_of

MS = MILLISECOND
SITES: tuple[NodeId, ...] = (1, 2, 3)
SOURCE = source_id(1)
TIMING = Timing(
    100 * MS,
    process_ns=10 * MS,
    retries_max=2,
    clock_error_ns=1 * MS,
    ring_size=3,
    token_period_ns=600 * MS,
    release_delay_ns=700 * MS,
)
"""A recovery takes 522 ms, the gate another 102 ms."""
LAW = Law(TIMING, SITES, margin_ns=1 * MS, agreement=True)

E1, E2, E3 = Epoch(1, server_id(1)), Epoch(2, server_id(1)), Epoch(3, server_id(1))
START = 10 * SECOND
TOKENS = 6
"""Tokens of the quiet run that name messages; it ends while the seventh, an empty one, is on its way."""


def digest(epoch: Epoch, token_number: int, content: str = "") -> bytes:
    """A token's digest in these traces."""
    return digest_of(f"{epoch}/{token_number}/{content}".encode())


def ring(
    ballot: Epoch = E1,
    members: tuple[NodeId, ...] = SITES,
    *,
    start: int = START,
    cut_epoch: Epoch = NO_EPOCH,
    cut_token: int = 0,
    universe: tuple[NodeId, ...] = SITES,
) -> NewRing:
    """The ring of an epoch that continues a log from its cut."""
    cut_digest = digest(cut_epoch, cut_token) if cut_token else NO_DIGEST
    return NewRing(
        0,
        ballot,
        ballot.server,
        ballot,
        members,
        cut_token + 1,
        2 * cut_token + 1,
        start,
        cut_epoch,
        cut_token,
        cut_digest,
        members,
        (b"",) * len(members),
        universe,
        (),
    )


R1 = ring()


def instant(token_number: int, of: NewRing = R1) -> int:
    """T_t."""
    return of.start + (token_number - of.first_token) * TIMING.token_period_ns


def owner(token_number: int, of: NewRing = R1) -> NodeId:
    """Who sends token t."""
    return of.ring[(token_number - of.first_token) % len(of.ring)]


def release_at(token_number: int, of: NewRing = R1) -> int:
    """T_t+Δ_A."""
    return instant(token_number, of) + TIMING.release_delay_ns


END = release_at(TOKENS) + 50 * MS


def message(number: int, text: str = "", source: NodeId = SOURCE, *, base: int = 1) -> Data:
    """The message of that number; `base` changes while a source sends it again."""
    return Data(0, E1, source, number, base, (text or f"payload {number}").encode())


def submitted(number: int, at: int, source: NodeId = SOURCE) -> Submitted:
    """A client handed a message to its source."""
    return Submitted(at, source, number, message(number, source=source).digest)


def sent(token_number: int, of: NewRing = R1, *, content: str = "") -> TokenSent:
    """The owner sends its token at its instant."""
    at = instant(token_number, of)
    what = digest(of.ballot, token_number, content)
    return TokenSent(at, owner(token_number, of), of.ballot, token_number, at, what, 2)


def completed(site: NodeId, token_number: int, of: NewRing = R1, *, at: int | None = None) -> Completed:
    """A site completes a token: the owner at once, the others 20 ms later."""
    if at is None:
        at = instant(token_number, of) + (0 if site == owner(token_number, of) else 20 * MS)
    return Completed(at, site, of.ballot, token_number, digest(of.ballot, token_number), 2, 2)


def installed(site: NodeId, of: NewRing = R1, *, at: int = SECOND, keep: int | None = None) -> Installed:
    """A site enters the epoch of a ring."""
    return Installed(at, site, of, of.cut_token if keep is None else keep)


def released(
    site: NodeId,
    token_number: int,
    messages: Sequence[Data] = (),
    *,
    first_sequence: int | None = None,
    at: int | None = None,
) -> Released:
    """A site releases the two messages of a token, a little after its instant that all share."""
    numbers = (2 * token_number - 1, 2 * token_number)
    due = release_at(token_number)
    return Released(
        due + site * MS // 10 if at is None else at,
        site,
        E1,
        token_number,
        instant(token_number),
        numbers[0] if first_sequence is None else first_sequence,
        tuple(messages) or tuple([message(number) for number in numbers]),
        due,
        clock_kept=True,
    )


def suspected(site: NodeId, token_number: int, at: int, suspect: NodeId, reason: Suspicion) -> Suspected:
    """A site gave up on something."""
    return Suspected(at, site, token_number, suspect, reason)


def crashed(site: NodeId, at: int) -> Crashed:
    """A site went down."""
    return Crashed(at, site)


def restarted(site: NodeId, at: int, held: int, epoch: Epoch = E1, *, disk_kept: bool = True) -> Restarted:
    """A site came back."""
    return Restarted(at, site, disk_kept, epoch, epoch, held)


def one_token(token_number: int) -> list[Fact]:
    """All that happens to one token of the quiet run."""
    at, first = instant(token_number), owner(token_number)
    sites = (first, *[site for site in SITES if site != first])
    facts: list[Fact] = []
    for site in sites:
        done = completed(site, token_number)
        facts.append(done)
        if site == first:
            facts.append(sent(token_number))
        facts.append(ReceiptSent(done.at, site, E1, token_number))
        if token_number >= 3:
            facts.append(Collected(at + 30 * MS, site, token_number - 2))
    if token_number <= TOKENS:
        facts.extend([submitted(number, at - 50 * MS) for number in (2 * token_number - 1, 2 * token_number)])
        facts.extend([released(site, token_number) for site in SITES])
    return facts


def in_order(facts: Iterable[Fact]) -> list[Fact]:
    """As they happened; of facts at one instant, those named first come first."""
    return sorted(facts, key=lambda fact: fact.at)


def quiet_run() -> list[Fact]:
    """Everything goes well: the ring is formed, and each token is sent, completed, released and collected."""
    facts: list[Fact] = []
    for site in SITES:
        facts.extend([Promised(SECOND, site, E1), installed(site)])
    for number in range(1, TOKENS + 2):
        facts.extend(one_token(number))
    return in_order([fact for fact in facts if fact.at <= END])


def without(facts: Iterable[Fact], unwanted: Callable[[Fact], bool]) -> list[Fact]:
    """The trace without some of its facts."""
    return [fact for fact in facts if not unwanted(fact)]


def changed(facts: Iterable[Fact], old: Fact, new: Fact) -> list[Fact]:
    """The trace with one fact told differently."""
    told = list(facts)
    told[told.index(old)] = new
    return in_order(told)


def until(facts: Iterable[Fact], at: int) -> list[Fact]:
    """The trace up to an instant."""
    return [fact for fact in facts if fact.at <= at]


def quiet_end(now: int = END) -> EndOfRun:
    """How the quiet run ends."""
    return EndOfRun(now, SITES, now, dict.fromkeys(SITES, (E1, E1, False)), 0)


def judge(facts: Iterable[Fact], law: Law = LAW, end: EndOfRun | None = None) -> Suite:
    """The verdict on a trace."""
    suite = Suite(law)
    for fact in facts:
        suite.observe(fact)
    if end is not None:
        suite.finish(end)
    return suite


def broken(facts: Iterable[Fact], law: Law = LAW, end: EndOfRun | None = None) -> list[str]:
    """Which properties a trace breaks, each once."""
    return sorted({violation.property for violation in judge(facts, law, end).violations})


def unsafe(facts: Iterable[Fact], law: Law = LAW) -> list[str]:
    """The safety properties among them: a trace that stops short leaves duties undone, and is not judged by those."""
    return [name for name in broken(facts, law) if name.startswith("S")]


def texts(facts: Iterable[Fact], name: str, law: Law = LAW) -> list[str]:
    """What is said about the breaches of one property."""
    return [violation.text for violation in judge(facts, law).violations if violation.property == name]


def faulted(site: NodeId, token_number: int, at: int | None = None) -> Faulted:
    """A site records that it could not release a token at its instant."""
    return Faulted(release_at(token_number) if at is None else at, site, token_number)


def law(**changes: object) -> Law:
    """The law with something changed."""
    return replace(LAW, **changes)  # type: ignore[arg-type]


Checker = TypeVar("Checker", EdgeChecker, NarrowChecker)


class EdgeTrace(Generic[Checker]):
    """A trace of what happens below the ring, for the checker of it alone."""

    def __init__(self, law: Law, checker: type[Checker]) -> None:
        """Nothing has happened."""
        self.report = Report()
        self.checker: Checker = checker(law, self.report)

    def ended(self, *nodes: NodeId) -> list[str]:
        """Which properties are broken at the end of a run through which these nodes were correct."""
        end = EndOfRun(now=1, correct=(), submissions_due=0, epochs={}, unacknowledged=0, edge=dict.fromkeys(nodes, 1))
        self.checker.finish(end)
        return self.found

    @property
    def found(self) -> list[str]:
        """Which properties are broken so far."""
        return [violation.property for violation in self.report.violations]
