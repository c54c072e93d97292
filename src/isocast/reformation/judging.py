"""What a reformation server makes of suspicions (protocol §5, step 1): tell, probe, bar, or hold a ballot.

A suspicion only informs. Whoever speaks of itself, or of a server's silence, is believed; who accuses another has that
one probed first; a site that asks to come in, or shall leave, gets a planned ballot, and each that changes nothing
makes the next one wait longer. A site whose clock is wrong, by the votes or by its tokens, stays off the ring, longer
each time that it was let in too early.

Servers take turns by rank. A ballot that brings no token moves its server behind the others, whatever the reason was:
its clock, its network, or chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from isocast.reformation.ballot import Ballot, Bar, Excuse, Planned, Probe, Stage
from isocast.reformation.clocks import VotedClocks
from isocast.reformation.member import FAR_START
from isocast.ring.effects import Effect, Unicast
from isocast.ring.settings import RingSettings
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import Invite, NewRing, Suspect, Suspicion

__all__ = ["Judging"]

CLOCK_BAR_CYCLES = 4
"""Cycles for which a site stays off the ring: one whose clock is wrong, or an owner that failed twice.

Doubled each time that it failed again soon after: to let it in costs everybody a ballot.
"""
_BARS_MAX = 6
"""Doublings of that time: 256 cycles. A site whose clock was set right waits so long, or for the next ballot."""
COMPLAINT_CYCLES = 3
"""Cycles within which a second complaint of the same site about the same other counts."""
PLANNED_CYCLES = 1
"""Cycles between two planned ballots, doubled each time that a ballot changes nothing."""
_DOUBLED_MAX = 6

_DECISIVE = (Suspicion.BEHIND, Suspicion.LATE, Suspicion.SEALED, Suspicion.LOST, Suspicion.STRANDED)
"""Suspicions that need no probe: whoever raises them speaks of itself, or of a server that stayed silent."""


class Judging:
    """The part of a server that listens to complaints. `rank` orders the servers: a lower one moves first."""

    def __init__(
        self,
        server: NodeId,
        settings: RingSettings,
        rank: int,
        regions: Mapping[NodeId, str],
        ring: NewRing | None,
        highest: Epoch,
        servers: tuple[NodeId, ...] = (),
    ) -> None:
        """Nobody has complained of anything. `servers` are all of them, by rank, as far as they are known."""
        self.server = server
        self.ring = ring
        self._settings = settings
        self._stripe = settings.stripe
        self._timing = settings.timing
        self._rank = rank
        self._servers = servers
        self._regions = regions
        self._highest = highest
        self._stage = Stage.IDLE
        self._next_at = NEVER
        self._probe: Probe | None = None
        self._ballot: Ballot | None = None
        self._planned = Planned()
        self._parting = Planned()
        self._leaver: NodeId | None = None
        """Who was to be let go by the last such ballot."""
        self._excused: dict[tuple[NodeId, NodeId], Excuse] = {}
        self._alive: dict[NodeId, int] = {}
        self._accused: dict[NodeId, dict[NodeId, None]] = {}
        self._barred: dict[NodeId, Bar] = {}
        self._faltered: dict[NodeId, int] = {}
        self._told_at: dict[NodeId, int] = {}
        self._voted = VotedClocks()
        """The clocks of those who vote for the newest ballot, a rival's or our own."""
        self.clock_ahead_ns = 0
        """How far this server's clock was ahead of most voters' in the last ballot, beyond what its bound allows."""
        self._trial, self._borne = ring.ballot if ring else NO_EPOCH, True
        """The newest ballot, and whether it has brought a token."""
        self._fruitless: dict[NodeId, int] = {}
        """By server: ballots that brought none."""
        self._out: list[Effect] = []

    def _on_suspect(self, suspect: Suspect, now: int) -> None:
        """Judge a suspicion: tell the stale what is new, probe the accused, or go to a ballot."""
        self._highest = max(self._highest, suspect.promised, suspect.epoch)
        current = self.ring.ballot if self.ring else NO_EPOCH
        stranded = suspect.reason is Suspicion.STRANDED and suspect.promised == current
        if self.ring is not None and suspect.epoch < current and suspect.promised <= current and not stranded:
            self._tell(suspect.sender, self.ring, now)
            return
        decisive = suspect.reason in _DECISIVE
        if self._stage is not Stage.IDLE and not (decisive and self._stage is Stage.PROBING):
            return
        if self._outsider(suspect):
            return
        match suspect.reason:
            case Suspicion.OUTSIDE:
                if now >= self._planned.not_before and not self._is_barred(suspect.sender, now):
                    self._wait(now)
            case Suspicion.LEAVING:
                self._let_go(suspect, now)
            case Suspicion.CLOCK:
                self._accuse(suspect, now)
            case Suspicion.UNRECOVERED | Suspicion.NO_RECEIPTS:
                self._start_probe(suspect, now)
            case _:
                self._note_falter(suspect, now)
                self._wait(now)

    def _let_go(self, suspect: Suspect, now: int) -> None:
        """A ballot for a ring without a site that shall leave it. Words of another epoch are of another ring."""
        ring = self.ring
        if ring is None or suspect.epoch != ring.ballot or suspect.suspect not in ring.ring:
            return
        if now >= self._parting.not_before:
            self._leaver = suspect.suspect
            self._wait(now)

    def _tell(self, site: NodeId, ring: NewRing, now: int) -> None:
        """Give a site that is behind the ring; not for every copy of what it said."""
        told_at = self._told_at.get(site, -NEVER)
        if not told_at <= now < told_at + self._timing.retry_ns // 2:
            self._told_at[site] = now
            self._out.append(Unicast(site, ring))

    def _note_falter(self, suspect: Suspect, now: int) -> None:
        """An owner that fails twice within a cycle would fail the next ring too: it stays off for a while."""
        if self.ring is None or suspect.reason not in (Suspicion.BEHIND, Suspicion.LATE):
            return
        cycle = len(self.ring.ring) * self._timing.token_period_ns
        if now < self._faltered.get(suspect.sender, -NEVER) + cycle:
            self._bar(suspect.sender, cycle, now)
        self._faltered[suspect.sender] = now

    def _outsider(self, suspect: Suspect) -> bool:
        """Whether a site off the ring complains of what it lacks: it must catch up, and the ring need not stop."""
        if self.ring is None or suspect.promised > self.ring.ballot or suspect.sender in self.ring.ring:
            return False
        if self.ring.uncertified and suspect.reason is Suspicion.STRANDED:
            # It may know more than a ring that began without a majority.
            return False
        return suspect.reason not in (Suspicion.OUTSIDE, Suspicion.SEALED)

    def _start_probe(self, suspect: Suspect, now: int) -> None:
        """Ask the accused itself; a second complaint about a site that answered means a broken pair."""
        self._forget_excuses(now)
        pair, number = (suspect.sender, suspect.suspect), suspect.token_number
        excuse = self._excused.get(pair)
        if excuse is None and self._alive.get(suspect.suspect, 0) >= number:
            self._excused[pair] = Excuse(now, number)
        elif excuse is None:
            self._ask(suspect.suspect, number, suspect.sender, now)
        elif now < excuse.at + self._timing.retry_ns:
            return
        elif number > excuse.token_number:
            self._wait(now)
        elif suspect.reason is Suspicion.UNRECOVERED:
            # The very same words: does their sender still lack the token, or does somebody repeat what he recorded?
            self._ask(suspect.sender, number, suspect.sender, now)

    def _ask(self, site: NodeId, token_number: int, accuser: NodeId, now: int) -> None:
        self._probe = Probe(site, token_number, accuser)
        self._stage = Stage.PROBING
        self._send_probe(now)

    def _forget_excuses(self, now: int) -> None:
        """A complaint of long ago says nothing about the next."""
        cycles = COMPLAINT_CYCLES * (len(self.ring.ring) if self.ring else 1)
        since = now - cycles * self._timing.token_period_ns
        self._excused = {pair: excuse for pair, excuse in self._excused.items() if excuse.at >= since}

    def _send_probe(self, now: int) -> None:
        probe = self._probe
        if probe is None:
            return
        if probe.attempts == self._timing.retries_max:
            self._wait(now)
            return
        probe.attempts += 1
        self._out.append(Unicast(probe.suspect, self._invite(self.ring.ballot if self.ring else NO_EPOCH)))
        self._next_at = now + self._timing.retry_ns

    def _accuse(self, suspect: Suspect, now: int) -> None:
        """A majority against one site, or one site against two others: that one's clock is out of its bound."""
        if self.ring is None:
            return
        self._accused.setdefault(suspect.suspect, {})[suspect.sender] = None
        accusers = self._accused[suspect.suspect]
        complaints = [accused for accused, by in self._accused.items() if suspect.sender in by]
        guilty = None
        if len(accusers) > len(self.ring.ring) // 2:
            guilty = suspect.suspect
        elif len(complaints) > 1:
            guilty = suspect.sender
        if guilty is not None:
            self._bar(guilty, len(self.ring.ring) * self._timing.token_period_ns, now)
            self._accused.clear()
            self._wait(now)

    # Who stays off the ring ---------------------------------------------------------------------

    def _bar(self, site: NodeId, cycle_ns: int, now: int, *, by_vote: bool = False) -> None:
        """Keep a site off the ring for some cycles; for twice as many if it was let in and failed soon after."""
        known = self._barred.get(site)
        times = 0
        if known is not None:
            times = known.times if now < known.until else min(known.times + 1, _BARS_MAX)
        span_ns = CLOCK_BAR_CYCLES * cycle_ns << times
        self._barred[site] = Bar(now + span_ns, span_ns, times, by_vote)

    def _is_barred(self, site: NodeId, now: int) -> bool:
        return site in self._barred and now < self._barred[site].until

    def _still_barred(self, now: int) -> dict[NodeId, int]:
        """Who stays off the ring, and until when. A bar is forgotten when as long again has passed without another."""
        self._barred = {site: bar for site, bar in self._barred.items() if now < bar.until + bar.span_ns}
        return {site: bar.until for site, bar in self._barred.items() if now < bar.until and not bar.by_vote}

    def _judge_clocks(self, ring: NewRing, now: int) -> None:
        """A ring was decided: whoever voted for it with a wrong clock need not ask to come in for a while."""
        if self._voted.ballot != ring.ballot:
            return
        self.clock_ahead_ns = -self._voted.ahead_ns()
        for site in self._voted.wrong():
            if site not in ring.ring:
                self._bar(site, len(ring.ring) * self._timing.token_period_ns, now, by_vote=True)

    def _plan(self, ring: NewRing, now: int) -> None:
        """The next ballot that only lets sites in, or out, waits for a few cycles of this ring."""
        # Its start is an instant of the members' clocks: to a clock far from theirs it says nothing.
        near = abs(ring.start - now) < FAR_START * self._timing.reformation_ns
        start = ring.start if near else now
        same = self.ring is not None and sorted(self.ring.ring) == sorted(ring.ring)
        self._planned.in_vain = self._planned.in_vain + 1 if same else 0
        self._planned.not_before = start + self._pause(ring, self._planned.in_vain)
        if self._leaver is not None:
            self._parting.in_vain = self._parting.in_vain + 1 if self._leaver in ring.ring else 0
            self._leaver = None
        # The ring may have been formed for another reason: whoever is to leave it need not wait for that.
        self._parting.not_before = start + (self._pause(ring, self._parting.in_vain) if same else 0)

    def _pause(self, ring: NewRing, in_vain: int) -> int:
        cycles = PLANNED_CYCLES << min(in_vain, _DOUBLED_MAX)
        return cycles * len(ring.ring) * self._timing.token_period_ns

    # Turns --------------------------------------------------------------------------------------

    def _wait(self, now: int) -> None:
        """Hold a ballot when our turn comes: servers of higher rank, and those that collided, wait longer."""
        self._stage = Stage.WAITING
        self._probe = None
        self._next_at = now + self._turn() * self._timing.reformation_ns + self._backoff()

    def _turn(self) -> int:
        """Our place among the servers: by rank, but behind those with fewer ballots that brought no token."""
        if self.server not in self._servers:
            return self._rank
        against = dict(self._fruitless)
        if not self._borne:
            against[self._trial.server] = against.get(self._trial.server, 0) + 1
        return sorted(self._servers, key=lambda server: against.get(server, 0)).index(self.server)

    def _try_ballot(self, ballot: Epoch) -> None:
        """A ballot begins, a rival's or our own. If the one before it brought no token, its server moves back."""
        if ballot <= self._trial:
            return
        if not self._borne:
            self._fruitless[self._trial.server] = self._fruitless.get(self._trial.server, 0) + 1
        self._trial, self._borne = ballot, False

    def _bear(self, epoch: Epoch) -> None:
        """A token came: its ballot was worth it, and of the others it is only remembered that they were not."""
        if epoch >= self._trial and not self._borne:
            self._trial, self._borne = epoch, True
            self._fruitless.pop(epoch.server, None)
            self._fruitless = dict.fromkeys(self._fruitless, 1)

    def _backoff(self) -> int:
        """A part of δ_N that depends on server and ballot alone: collisions do not repeat."""
        return self._share("", self._timing.detect_ns) if self._highest != NO_EPOCH else 0

    def _share(self, purpose: str, span_ns: int) -> int:
        """A part of a span, by chance for all we know, and the same for the same server, ballot and purpose."""
        seed = f"{self.server}/{self._highest}{purpose}".encode()
        return int.from_bytes(blake2b(seed, digest_size=4).digest()) * span_ns >> 32

    def _rest(self) -> None:
        self._stage = Stage.IDLE
        self._next_at = NEVER

    def _invite(self, ballot: Epoch) -> Invite:
        return Invite(self._stripe, self.ring.ballot if self.ring else NO_EPOCH, self.server, ballot)
