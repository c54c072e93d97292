"""What is shown of a run: figures of each city, releases with skew and latency, and what happened, in words.

It watches from outside. Facts come from the recorder, losses from the network, requests and repairs from receivers that
say what passes through them; nothing here changes what the machines do.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from isocast.checks.facts import Crashed, Fact, Faulted, Installed, Released, Restarted, Submitted, Suspected, TokenSent
from isocast.ring.effects import Effect, Unicast
from isocast.ring.settings import Schedule
from isocast.simulation.network import PacketBurst, PacketKey, packet_key
from isocast.simulation.scenario import Scenario
from isocast.terms.ids import Epoch, NodeId, describe, is_site
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.quantities import counted
from isocast.terms.topology import City, delay_ns
from isocast.trials.demo.cast import LogNote, Tone
from isocast.wire.packets import Nack, NewRing, Repair, Suspicion

__all__ = ["ObservedSite", "Scene", "SceneChunk", "SceneReleases"]


# ---- Releases of a run as its view measures them: skew between cities, and latency against the formula.


_CHUNKS_MAX = 128


@dataclass(slots=True)
class SceneChunk:
    """Messages of one token that are due at one instant, and when the cities released them."""

    token_number: int
    latency_ns: int
    """Mean of its messages, submit to first release."""
    unbroken: bool
    """Acknowledged and released by one ring, on its timetable."""
    first: int
    last: int
    sites: int = 0

    @property
    def skew_ns(self) -> int:
        """Between the first and the last city that released at the common instant."""
        return self.last - self.first


class SceneReleases:
    """Counts what goes out, and when."""

    def __init__(self, scenario: Scenario) -> None:
        """Nothing is out."""
        self._timing = scenario.timing
        self._scenario = scenario
        self.chunks: deque[SceneChunk] = deque(maxlen=_CHUNKS_MAX)
        self.messages = 0
        """In the sequence."""
        self.punctual = 0
        """Releases at the common instant, messages summed over cities."""
        self.late = 0
        """Releases after it, of cities that were down or caught up."""
        self.skew_ns = 0
        """The largest between cities that released at the common instant."""
        self._by_first: dict[int, SceneChunk] = {}
        self._submitted_at: dict[tuple[NodeId, int], int] = {}
        self._first_tokens: dict[Epoch, int] = {}
        self._all = [0.0, 0.0]
        self._unbroken = [0.0, 0.0, 0.0]
        self._one_way_ns = _mean_delay_ns(scenario)
        # A clock within its bound is at most ε off; a wake-up may be late besides.
        self._punctual_ns = self._timing.clock_error_ns + scenario.wake_lateness_ns * 30 + MILLISECOND // 1000

    def formula_ns(self, loss: float) -> float:
        """The mean latency that the formula promises a ring in peace."""
        return self._timing.latency_ns(self._one_way_ns, loss)

    @property
    def latency_ns(self) -> float:
        """Mean over all messages, to the first release."""
        return self._all[1] / max(self._all[0], 1)

    @property
    def unbroken_latency_ns(self) -> float:
        """Mean over the messages that no reformation held up."""
        return self._unbroken[1] / max(self._unbroken[0], 1)

    @property
    def unbroken_formula_ns(self) -> float:
        """What the formula says of the same messages, each at the loss of its time."""
        return self._unbroken[2] / max(self._unbroken[0], 1)

    def submitted(self, fact: Submitted) -> None:
        """A source took a message."""
        self._submitted_at[fact.source, fact.number] = fact.at

    def ring_formed(self, ring: NewRing) -> None:
        """The first token of a ring carries what waited for it; later ones are as in peace."""
        self._first_tokens[ring.ballot] = ring.first_token

    def released(self, fact: Released, loss: float) -> None:
        """A city released a chunk."""
        count = len(fact.messages)
        chunk = self._by_first.get(fact.first_sequence)
        if chunk is None and fact.first_sequence > self.messages:
            chunk = self._begin(fact, loss)
        # What a new ring owes from an old one goes out at the new ring's start: in order, and late.
        owed = fact.due >= fact.instant + self._timing.release_delay_ns + self._timing.token_period_ns
        if chunk is None or owed or abs(fact.at - fact.due) > self._punctual_ns:
            self.late += count
            return
        self.punctual += count
        chunk.first = min(chunk.first, fact.at) if chunk.sites else fact.at
        chunk.last = max(chunk.last, fact.at) if chunk.sites else fact.at
        chunk.sites += 1
        self.skew_ns = max(self.skew_ns, chunk.skew_ns)

    def _begin(self, fact: Released, loss: float) -> SceneChunk:
        count = len(fact.messages)
        waited = 0
        for message in fact.messages:
            waited += fact.at - self._submitted_at.pop((message.sender, message.number), fact.at)
        on_timetable = fact.due == fact.instant + self._timing.release_delay_ns or bool(self._scenario.release_rate)
        first_token = self._first_tokens.get(fact.epoch, fact.token_number)
        unbroken = on_timetable and fact.token_number > first_token and count > 0
        chunk = SceneChunk(fact.token_number, waited // max(count, 1), unbroken, fact.at, fact.at)
        self._by_first[fact.first_sequence] = chunk
        if len(self._by_first) > _CHUNKS_MAX:
            del self._by_first[next(iter(self._by_first))]
        self.chunks.append(chunk)
        self.messages += count
        self._all[0] += count
        self._all[1] += waited
        if unbroken:
            self._unbroken[0] += count
            self._unbroken[1] += waited
            self._unbroken[2] += count * self.formula_ns(loss)
        return chunk


def _mean_delay_ns(scenario: Scenario) -> int:
    """d: from a source to an owner, mean over all pairs of cities that talk so."""
    ring = scenario.ring
    if not ring:
        return scenario.one_way_delay_ns + scenario.jitter_ns
    origins = scenario.traders or ring
    total = sum([delay_ns(a, b) for a in origins for b in ring])
    return total // (len(origins) * len(ring)) + scenario.jitter_ns


"""A message by its label, or a token, or a part of one."""

_LOSS_SHOWN_NS = SECOND // 4
_REPAIR_SHOWN_NS = SECOND * 6 // 10
"""How long a loss or a repair stays on the map, in virtual time."""
_NOTES_MAX = 200

_REASONS = {
    Suspicion.UNRECOVERED: "no answer to its requests",
    Suspicion.NO_RECEIPTS: "no receipts for two tokens",
    Suspicion.BEHIND: "it lacks what came before",
    Suspicion.LATE: "the instant is past",
    Suspicion.CLOCK: "a token came before its time",
    Suspicion.SEALED: "the ballot went silent",
}


@dataclass(slots=True)
class ObservedSite:
    """One city's receiver, as an observer counts it."""

    site: NodeId
    name: str
    place: City | None
    up: bool = True
    lost: int = 0
    """DATA and TOKEN packets that did not reach it."""
    regained: int = 0
    """Of those, how many came later."""
    nacks: int = 0
    """Requests that it sent."""
    repairs: int = 0
    """Packets that it sent again for others."""
    faults: int = 0
    """Tokens that it could not release at their instant."""
    released: int = 0
    """The newest sequence that it released."""
    gaps: int = 0
    offset_ns: int | None = None
    """Of its last release, against the instant that is common to all."""
    flash_until: int = -1
    lacking: dict[PacketKey, None] = field(default_factory=dict)


class Scene:
    """Everything that a frame, a line of plain text or the summary needs."""

    def __init__(self, scenario: Scenario) -> None:
        """Nothing has happened."""
        self.scenario = scenario
        places: Sequence[City | None] = scenario.ring or [None] * scenario.receivers
        self.sites = {
            number: ObservedSite(number, place.name if place else f"site {number}", place)
            for number, place in enumerate(places, 1)
        }
        self.notes: deque[LogNote] = deque(maxlen=_NOTES_MAX)
        self.on_note: Callable[[LogNote], None] | None = None
        self.needs: Callable[[NodeId, PacketKey], bool] = lambda _site, _key: True
        """Whether a city still lacks a packet."""
        self.now = 0
        self.loss = scenario.loss
        self.submitted = 0
        self.holder: NodeId | None = None
        """Who sent the newest token: it answers requests until the next."""
        self.token: TokenSent | None = None
        self.schedule: Schedule | None = None
        self.epoch: Epoch | None = None
        self.repairs: deque[tuple[int, NodeId, NodeId]] = deque(maxlen=32)
        """Lately: when, from whom, to whom."""
        self.releases = SceneReleases(scenario)
        self._tally: Counter[str] = Counter()
        self._said: dict[object, None] = {}

    # Sums over the cities -------------------------------------------------------------------------

    @property
    def lost(self) -> int:
        """DATA and TOKEN packets that some city did not get."""
        return sum([site.lost for site in self.sites.values()])

    @property
    def regained(self) -> int:
        """Of those, how many it got later."""
        return sum([site.regained for site in self.sites.values()])

    @property
    def awaited(self) -> int:
        """Of the others, the newest token: no message waits for it, and the run ended before its repair was due."""
        newest = ("token", self.token.token_number) if self.token is not None else None
        return sum([newest in site.lacking for site in self.sites.values()])

    @property
    def gaps(self) -> int:
        """Sequences that some city skipped."""
        return sum([site.gaps for site in self.sites.values()])

    @property
    def faults(self) -> int:
        """Fairness faults of all cities."""
        return sum([site.faults for site in self.sites.values()])

    def recent_repairs(self) -> list[tuple[ObservedSite, ObservedSite]]:
        """Pairs between which repairs travelled a moment ago."""
        pairs = {(a, b): None for at, a, b in self.repairs if at >= self.now - _REPAIR_SHOWN_NS}
        return [(self.sites[a], self.sites[b]) for a, b in pairs]

    def next_token(self) -> tuple[int, ObservedSite, int] | None:
        """Number, owner and instant of the token that is due next; None before the first ring."""
        if self.schedule is None:
            return None
        schedule = self.schedule
        number = schedule.first_token
        if self.token is not None and self.token.epoch == self.epoch:
            number = max(number, self.token.token_number + 1)
        return number, self.sites[schedule.owner(number)], schedule.instant(number)

    def missing(self) -> list[ObservedSite]:
        """Cities that are not on the present ring."""
        ring = self.schedule.ring if self.schedule else ()
        return [site for site in self.sites.values() if site.site not in ring]

    def tick(self, now: int, loss: float) -> None:
        """Time has passed; `loss` is what the network loses now."""
        self.now = now
        for site in self.sites.values():
            for key in [key for key in site.lacking if not self.needs(site.site, key)]:
                self._regained(site, key)
        if loss != self.loss:
            self.loss = loss
            share = f"{100 * loss:g} % of all packets get lost" if loss else "no packets get lost"
            self._note(now, Tone.TROUBLE, f"From now on {share}")

    # What is told ---------------------------------------------------------------------------------

    def fact(self, fact: Fact) -> None:
        """A fact of the run."""
        match fact:
            case Submitted():
                self.submitted += 1
                self.releases.submitted(fact)
            case Released():
                self._on_released(fact)
            case TokenSent():
                self._on_token(fact)
            case Installed():
                self._on_installed(fact)
            case Suspected():
                self._on_suspected(fact)
            case Faulted():
                self._on_faulted(fact)
            case Crashed():
                self._on_crashed(fact)
            case Restarted() if is_site(fact.node):
                site = self.sites[fact.node]
                site.up = True
                disk = f"with its disk: it holds token {fact.held}" if fact.disk_kept else "without its disk"
                self._note(fact.at, Tone.RING, f"{site.name} is back {disk}")
            case _:
                pass

    def lost_packets(self, to: NodeId, burst: PacketBurst) -> None:
        """One destination of a multicast does not get these."""
        site = self.sites.get(to)
        if site is None:
            return
        for packet in burst:
            key = packet_key(packet)
            if key is not None and key not in site.lacking and self.needs(to, key):
                site.lost += 1
                site.lacking[key] = None
                site.flash_until = self.now + _LOSS_SHOWN_NS

    def arrived(self, to: NodeId, packets: Sequence[object]) -> None:
        """Packets reached a city that lacks something."""
        site = self.sites[to]
        for packet in packets:
            repair = packet if isinstance(packet, Repair) else None
            key = packet_key(repair.item if repair else packet)
            if key is not None and key in site.lacking:
                self._regained(site, key)
                if repair and repair.sender in self.sites:
                    self.repairs.append((self.now, repair.sender, to))

    def _regained(self, site: ObservedSite, key: PacketKey) -> None:
        """By a repair, by its source's next attempt, or by the log of another city after a ballot."""
        del site.lacking[key]
        site.regained += 1
        self._tally["repaired"] += 1

    def sent(self, site: NodeId, effects: Sequence[Effect]) -> None:
        """A city's receiver acts: requests and repairs are counted."""
        for effect in effects:
            match effect:
                case Unicast(packet=Nack()):
                    self.sites[site].nacks += 1
                    self._tally["asked"] += 1
                case Unicast(packet=Repair()):
                    self.sites[site].repairs += 1
                case _:
                    pass

    # Facts one by one -----------------------------------------------------------------------------

    def _on_released(self, fact: Released) -> None:
        site = self.sites[fact.site]
        site.gaps += max(fact.first_sequence - site.released - 1, 0)
        site.released = max(site.released, fact.first_sequence + len(fact.messages) - 1)
        site.offset_ns = fact.at - fact.due
        self.releases.released(fact, self.loss)

    def _on_token(self, fact: TokenSent) -> None:
        if self._tally["repaired"]:
            asked = f", {counted(self._tally['asked'], 'request')}" if self._tally["asked"] else ""
            self._note(fact.at, Tone.REPAIR, f"{counted(self._tally['repaired'], 'lost packet')} repaired{asked}")
        self._tally.clear()
        self.token, self.holder = fact, fact.site
        text = f"{self.sites[fact.site].name} sends token {fact.token_number}: {counted(fact.count, 'message')}"
        self._note(fact.at, Tone.TOKEN, text)

    def _on_installed(self, fact: Installed) -> None:
        ring = fact.ring
        if self.epoch is None or ring.ballot > self.epoch:
            first = self.epoch is None
            self.epoch = ring.ballot
            self.holder = None
            self.schedule = Schedule(ring, self.scenario.timing.token_period_ns)
            self.releases.ring_formed(ring)
            self._note(fact.at, Tone.RING, self._ring_text(ring, first=first))
        elif fact.site not in ring.ring:
            text = f"{self.sites[fact.site].name} catches up from outside the ring of epoch {ring.ballot}"
            self._note(fact.at, Tone.RING, text)

    def _ring_text(self, ring: NewRing, *, first: bool) -> str:
        away = " and ".join([site.name for site in self.missing()][:3])
        who = f"{len(ring.ring)} without {away}" if away else f"all {len(ring.ring)} cities"
        formed = "forms" if first else "re-forms"
        return f"The ring {formed}, epoch {ring.ballot}: {who}"

    def _on_suspected(self, fact: Suspected) -> None:
        site = self.sites[fact.site]
        if self.epoch is None:
            if self._first("start"):
                self._note(fact.at, Tone.RING, "The cities know of no ring and ask the servers for one")
            return
        who = self.sites[fact.suspect].name if fact.suspect in self.sites else describe(fact.suspect)
        why = _REASONS.get(fact.reason, fact.reason.value)
        if fact.suspect == fact.site and fact.site not in self._members():
            if self._first("outside", fact.site, self.epoch):
                self._note(fact.at, Tone.RING, f"{who} is not on the ring and asks to come in")
        elif self._first(fact.reason, fact.suspect, self.epoch):
            alone = fact.suspect == fact.site
            text = f"{who} sends no token {fact.token_number}: {why}" if alone else f"{site.name} suspects {who}: {why}"
            self._note(fact.at, Tone.TROUBLE, text)

    def _on_faulted(self, fact: Faulted) -> None:
        site = self.sites[fact.site]
        site.faults += 1
        if site.site not in self._members():
            if self._first("away", site.site, self.epoch):
                self._note(fact.at, Tone.TROUBLE, f"{site.name} was away: what it releases now is late")
        elif self._first("faulted", fact.token_number):
            text = f"Token {fact.token_number} misses its instant: a fairness fault"
            self._note(fact.at, Tone.TROUBLE, text)

    def _on_crashed(self, fact: Crashed) -> None:
        if not is_site(fact.node):
            self._note(fact.at, Tone.TROUBLE, f"{describe(fact.node)} crashes")
            return
        site = self.sites[fact.node]
        site.up = False
        site.lost -= len(site.lacking)  # A site that is down lacks everything: that is no loss of the network.
        site.lacking.clear()
        due = self.next_token()
        owner = f", and token {due[0]} is due from it" if due is not None and due[1] is site else ""
        self._note(fact.at, Tone.TROUBLE, f"{site.name} crashes{owner}")

    def _members(self) -> tuple[NodeId, ...]:
        return self.schedule.ring if self.schedule else ()

    def _first(self, *what: object) -> bool:
        """Whether this is said for the first time."""
        if what in self._said:
            return False
        self._said[what] = None
        return True

    def _note(self, at: int, tone: Tone, text: str) -> None:
        note = LogNote(at, tone, text)
        self.notes.append(note)
        if self.on_note is not None:
            self.on_note(note)
