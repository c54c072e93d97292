"""What follows lines tells people: counts, alarms that name a line, a server or a slow customer, lines in the log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from isocast.hierarchy.archive_effects import CustomerThrottled
from isocast.hierarchy.customer import CustomerSnapshot
from isocast.hierarchy.customer_settings import Grade
from isocast.hierarchy.edge import (
    ClaimRefuted,
    ConflictFound,
    CustomerCaughtUp,
    CustomerSlow,
    GapAbandoned,
    GapClosed,
    GapOpened,
    LineBack,
    LineLate,
    LineSilent,
    LineSwitched,
    MarketGoesOn,
    MarketWaits,
    RepairUnanswered,
    Slowness,
    Waiting,
)
from isocast.runtime.hosts.context import Context
from isocast.runtime.hosts.fetching import Fetcher
from isocast.runtime.watch.counters import NodeGauges
from isocast.terms.ids import NodeId
from isocast.terms.instants import MILLISECOND, SECOND

__all__ = ["EdgeReport", "waiting_text"]

_SLOW_REMEDY = {
    Slowness.STOPPED: "it did not get to run: look at the machine's load; what it missed is fetched",
    Slowness.LAGGING: "it reads slower than the lines send: give it a faster machine, or the grade latest",
    Slowness.OVERFLOW: "it was away or is too slow; what it missed is fetched in ranges",
}


def waiting_text(reason: Waiting, since: int) -> str:
    """In words, with the instant in UTC."""
    what = "ring is reforming" if reason is Waiting.REFORMING else "no line is heard"
    return f"{what} since {datetime.fromtimestamp(since // SECOND, UTC):%H:%M:%S} UTC" if since else f"{what} yet"


class EdgeReport:
    """Turns the effects that only tell something into counts, alarms and log lines."""

    def __init__(self, context: Context, fetcher: Fetcher, grade: Grade) -> None:
        """`fetcher` knows why a door did not answer."""
        self._context = context
        self._fetcher = fetcher
        self._grade = grade
        self._duplicates_before = self._conflicts_before = 0
        self.conflict_found: Callable[[ConflictFound], None] = lambda _: None
        """Told of every conflict, not of the first only."""
        self.has_position = True
        """Whether sequences from the very first on are owed; what is gone before a first start is nobody's loss."""

    def tell(self, effect: object) -> bool:
        """Whether the effect is one of those that only tell something."""
        match effect:
            case GapOpened() | GapClosed() | GapAbandoned():
                self._gap(effect)
            case LineSilent() | LineLate() | LineBack() | LineSwitched():
                self._line(effect)
            case MarketWaits() | MarketGoesOn():
                self._market(effect)
            case ConflictFound() | ClaimRefuted():
                self._liar(effect)
            case CustomerSlow() | CustomerCaughtUp() | CustomerThrottled():
                self._customer(effect)
            case RepairUnanswered(first, last, rounds):
                what = "a snapshot" if not last else f"sequences {first} to {last}"
                self._context.alarm(
                    "unanswered",
                    f"no server gave {what} in {rounds} rounds{self._reasons()}",
                    "are the retransmit servers up? asking goes on",
                )
            case _:
                return False
        return True

    def _reasons(self) -> str:
        names = [f"{self._name(server)}: {text}" for server, text in self._fetcher.trouble.items()]
        return f" ({'; '.join(names)})" if names else ": they answer, but do not have them yet"

    def _name(self, node: NodeId) -> str:
        return self._context.market.name_of(node)

    def _gap(self, effect: GapOpened | GapClosed | GapAbandoned) -> None:
        counters, log = self._context.counters, self._context.log
        match effect:
            case GapOpened(first, last, missing):
                counters.gaps_seen += 1
                log.debug("gap", first=first, last=last, missing=missing)
            case GapClosed(first, last, after_ns):
                counters.gaps_repaired += 1
                log.debug("gap closed", first=first, last=last, after_ms=after_ns // MILLISECOND)
            case GapAbandoned(first, last, missing) if not self.has_position and first == 1:
                log.info("begins with the oldest that is kept", sequence=last + 1)
            case GapAbandoned(first, last, missing):
                counters.messages_skipped += missing
                if self._grade is Grade.COMPLETE:
                    self._context.alarm(
                        "lost",
                        f"sequences {first} to {last} are lost: no server keeps them any more",
                        "fill in from another site's journal; keep more of the past ([journal] of the market file)",
                    )

    def _line(self, effect: LineSilent | LineLate | LineBack | LineSwitched) -> None:
        name = self._name(effect.line)
        match effect:
            case LineSilent(_, silent_ns):
                self._context.alarm(
                    f"silent-{name}",
                    f"the line of {name} is silent for {silent_ns // MILLISECOND} ms",
                    "look at that node and at the network between; other lines go on",
                )
            case LineLate(_, lag_ns):
                self._context.alarm(
                    f"late-{name}",
                    f"the line of {name} is {lag_ns // MILLISECOND} ms behind another",
                    "look at that node and at the network between; other lines go on",
                )
            case LineBack():
                self._context.log.info("line is back", line=name)
            case LineSwitched(_, before) if before is not None:
                self._context.counters.line_switches += 1
                self._context.log.warning("line switched", line=name, before=self._name(before))
            case LineSwitched():
                self._context.log.info("follows a line", line=name)

    def _market(self, effect: MarketWaits | MarketGoesOn) -> None:
        match effect:
            case MarketWaits(reason, since):
                self._context.log.warning("waiting", what=waiting_text(reason, since))
            case MarketGoesOn(_, after_ns):
                self._context.log.warning("goes on", after_ms=after_ns // MILLISECOND)

    def _liar(self, effect: ConflictFound | ClaimRefuted) -> None:
        match effect:
            case ConflictFound(sequence, first_line, other_line):
                first, other = self._name(first_line), self._name(other_line)
                self._context.counters.conflicts += 1
                self.conflict_found(effect)
                self._context.alarm(
                    f"conflict-{first}-{other}",
                    f"{first} and {other} carry different messages as sequence {sequence}; that of {first} stands",
                    "compare their journals: isocast journal verify; one of them lies or is damaged",
                )
            case ClaimRefuted(line, sequence, newest):
                name = self._name(line)
                self._context.alarm(
                    f"refuted-{name}",
                    f"{name} speaks of sequence {sequence}, and the newest is {newest}",
                    "look at that node; it is not believed for a while",
                )

    def _customer(self, effect: CustomerSlow | CustomerCaughtUp | CustomerThrottled) -> None:
        name = self._name(effect.customer)
        match effect:
            case CustomerSlow(_, reason, behind):
                unit = "messages" if reason is Slowness.OVERFLOW else "ms"
                amount = behind if reason is Slowness.OVERFLOW else behind // MILLISECOND
                self._context.alarm(
                    f"slow-{reason}", f"{name} is slow ({reason}): {amount} {unit} behind", _SLOW_REMEDY[reason]
                )
            case CustomerCaughtUp(_, reason):
                self._context.log.info("caught up", customer=name, reason=reason.value)
            case CustomerThrottled(_, asked, served, refused):
                self._context.alarm(
                    f"throttled-{name}",
                    f"{name} has used up its share: {asked} messages asked, {served} served, {refused} refused",
                    "it is far behind, and gets the rest by and by, or it is hostile; others are not affected",
                )

    # For whoever watches ------------------------------------------------------------------------

    def collect(self, snapshot: CustomerSnapshot, *, ends: bool = False) -> None:
        """Bring counts up to date that the machine keeps; `ends` before another machine takes its place."""
        duplicates = self._duplicates_before + sum([line.duplicates for line in snapshot.lines])
        conflicts = self._conflicts_before + snapshot.counters.conflicts
        self._context.counters.duplicates = duplicates
        # Each is counted as it is told; where there are more in one burst than are told, the machine knows.
        self._context.counters.conflicts = max(self._context.counters.conflicts, conflicts)
        if ends:
            self._duplicates_before, self._conflicts_before = duplicates, conflicts

    def gauges(self, snapshot: CustomerSnapshot) -> NodeGauges:
        """The state of whoever follows lines."""
        main = [line for line in snapshot.lines if not line.repairs and not line.left]
        status = self._context.clock.status
        return NodeGauges(
            next_sequence=snapshot.next_sequence if snapshot.joined else None,
            sequence_gaps=snapshot.gaps,
            lines_heard=len([line for line in main if line.messages + line.heartbeats and not line.silent]),
            lines_configured=len(main),
            line_followed=self._name(snapshot.followed) if snapshot.followed is not None else None,
            waiting=waiting_text(snapshot.waiting, snapshot.waiting_since) if snapshot.waiting else None,
            clock_source=status.bound_source.value,
            clock_synchronised=status.kernel_synchronised,
            clock_trusted=status.trusted,
            clock_bound_ns=status.bound_ns,
        )
