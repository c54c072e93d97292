"""A reformation server, X_R (§4.3; protocol §5): probes suspects, runs ballots, forms rings.

    idle ──suspicion──▶ probing ──no answer, or stuck──▶ waiting ──its turn──▶ inviting ──majority, grace──▶ idle
      ▲                    └──alive and ahead──▶ idle        └──another ballot──▶ idle       └─ in vain ─▶ waiting

A server that fails half-way is just a higher ballot: nothing that it did binds anybody but by promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from isocast.reformation.ballot import Ballot, Excuse, Planned, Probe, ServerSnapshot, ServerState, Stage
from isocast.reformation.forming import Formation, cut_key, enough, form
from isocast.ring.effects import BallotChosen, Effect, Multicast, Persist, RingDecided, Unicast
from isocast.ring.inputs import PacketsArrived, TimerFired
from isocast.ring.settings import RingSettings
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import Invite, Join, Nack, NewRing, Packet, Refuse, Suspect, Suspicion, Token, TokenPart

__all__ = ["ReformationServer", "ServerSnapshot", "ServerState"]

CLOCK_BAR_CYCLES = 4
"""Cycles for which a site stays off the ring: one whose clock a majority accuses, or an owner that failed twice."""
COMPLAINT_CYCLES = 3
"""Cycles within which a second complaint of the same site about the same other counts."""
PLANNED_CYCLES = 1
"""Cycles between two planned ballots, doubled each time that a ballot changes nothing."""


_DECISIVE = (Suspicion.BEHIND, Suspicion.LATE, Suspicion.SEALED, Suspicion.LOST, Suspicion.STRANDED)
"""Suspicions that need no probe: whoever raises them speaks of itself, or of a server that stayed silent."""


class ReformationServer:
    """The machine of one server. `rank` orders the servers: a lower one moves first."""

    cut_key = staticmethod(cut_key)
    enough = staticmethod(enough)

    def __init__(
        self,
        server: NodeId,
        settings: RingSettings,
        rank: int,
        regions: Mapping[NodeId, str],
        state: ServerState | None = None,
    ) -> None:
        """Start, or restart, from what the disk says."""
        self.server = server
        self.ring = state.ring if state else None
        self._stripe = settings.stripe
        self._timing = settings.timing
        self._rank = rank
        self._regions = regions
        self._highest = state.ballot if state else NO_EPOCH
        self._stage = Stage.IDLE
        self._next_at = NEVER
        self._probe: Probe | None = None
        self._ballot: Ballot | None = None
        self._planned = Planned()
        self._excused: dict[tuple[NodeId, NodeId], Excuse] = {}
        self._alive: dict[NodeId, int] = {}
        self._accused: dict[NodeId, dict[NodeId, None]] = {}
        self._barred: dict[NodeId, int] = {}
        self._faltered: dict[NodeId, int] = {}
        self._told_at: dict[NodeId, int] = {}
        self._stood_back = NO_EPOCH
        self._asked_at = -NEVER
        self._last_now = -NEVER
        self._out: list[Effect] = []
        if self.ring is None:
            # A first ballot by rank, counted from whenever the clock is first looked at.
            self._next_at = 0
        else:
            self._highest = max(self._highest, self.ring.ballot)

    # The contract -------------------------------------------------------------------------------

    def step(self, event: object, now: int) -> tuple[Effect, ...]:
        """Take one input at local time `now`."""
        if now < self._last_now:
            self._set_back(self._last_now - now)
        self._last_now = now
        if isinstance(event, PacketsArrived):
            for packet in event.packets:
                self._on_packet(packet, now)
        elif isinstance(event, TimerFired) and now >= self._next_at:
            self._on_timer(now)
        effects = tuple(self._out)
        self._out.clear()
        return effects

    def next_deadline(self) -> int:
        """When the machine must be woken."""
        return self._next_at

    def snapshot(self) -> ServerSnapshot:
        """For whoever watches."""
        votes = len(self._ballot.votes) if self._ballot else 0
        return ServerSnapshot(self.server, self._stage, self._highest, self.ring.ballot if self.ring else None, votes)

    def _set_back(self, span_ns: int) -> None:
        """Somebody set the clock back: everything that waits goes with it."""
        if self._next_at < NEVER:
            self._next_at -= span_ns
        if self._ballot is not None and self._ballot.decide_at < NEVER:
            self._ballot.decide_at -= span_ns
        self._excused = {pair: Excuse(at - span_ns, token) for pair, (at, token) in self._excused.items()}
        self._planned.not_before -= span_ns
        self._barred = {site: until - span_ns for site, until in self._barred.items()}
        self._faltered = {site: at - span_ns for site, at in self._faltered.items()}

    # Packets ------------------------------------------------------------------------------------

    def _on_packet(self, packet: Packet, now: int) -> None:
        match packet:
            case Suspect():
                self._on_suspect(packet, now)
            case Join():
                self._on_join(packet, now)
            case Refuse():
                self._on_refuse(packet, now)
            case NewRing():
                self._on_new_ring(packet)
            case Invite() if packet.sender != self.server:
                self._on_rival(packet, now)
            case Token() | TokenPart():
                self._on_token(packet, now)
            case _:
                pass

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
                if now >= self._planned.not_before:
                    self._wait(now)
            case Suspicion.CLOCK:
                self._accuse(suspect, now)
            case Suspicion.UNRECOVERED | Suspicion.NO_RECEIPTS:
                self._start_probe(suspect, now)
            case _:
                self._note_falter(suspect, now)
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
            self._barred[suspect.sender] = now + CLOCK_BAR_CYCLES * cycle
        self._faltered[suspect.sender] = now

    def _outsider(self, suspect: Suspect) -> bool:
        """Whether a site off the ring complains of what it lacks: it must catch up, and the ring need not stop."""
        if self.ring is None or suspect.promised > self.ring.ballot or suspect.sender in self.ring.ring:
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

    def _on_refuse(self, refuse: Refuse, now: int) -> None:
        """A probed suspect lives; or an invited member has promised more."""
        self._highest = max(self._highest, refuse.promised)
        ballot = self._ballot
        if ballot is not None and refuse.ballot == ballot.epoch and refuse.promised > ballot.epoch:
            self._ballot = None
            self._wait(now)
            return
        probe = self._probe
        if self._stage is Stage.PROBING and probe is not None and refuse.sender == probe.suspect:
            if refuse.held < probe.token_number:
                self._wait(now)
                return
            self._excused[probe.accuser, probe.suspect] = Excuse(now, probe.token_number)
            self._alive[probe.suspect] = refuse.held
            self._rest()

    def _on_rival(self, invite: Invite, now: int) -> None:
        """Another server's ballot: stand back, and watch whether it gets anywhere."""
        self._highest = max(self._highest, invite.ballot)
        mine = self._ballot.epoch if self._ballot else NO_EPOCH
        current = self.ring.ballot if self.ring else NO_EPOCH
        if invite.ballot > max(mine, current, self._stood_back) and self._stage is not Stage.IDLE:
            # Once for each ballot: copies of an invitation whose server is dead must not hold us up for ever.
            self._stood_back = invite.ballot
            self._ballot = None
            self._stage = Stage.WAITING
            self._next_at = now + 2 * self._timing.reformation_ns + self._backoff()

    def _on_new_ring(self, ring: NewRing) -> None:
        """Somebody's ballot succeeded."""
        self._highest = max(self._highest, ring.ballot)
        if self.ring is None or ring.ballot > self.ring.ballot:
            self._adopt(ring)

    def _on_token(self, token: Token | TokenPart, now: int) -> None:
        """The ring lives: a suspect that sends its token needs no probe, a market that runs no first ballot."""
        self._highest = max(self._highest, token.epoch)
        known = self.ring.ballot if self.ring else NO_EPOCH
        if token.epoch > known and not self._asked_at <= now < self._asked_at + self._timing.retry_ns:
            # We missed its NEWRING: whoever is on it answers a request of an old epoch with the ring.
            self._asked_at = now
            request = Nack(self._stripe, known, self.server, 0, has_token=False, parts_held=0, listed=())
            self._out.append(Unicast(token.sender, request))
        if self.ring is None and self._stage in (Stage.IDLE, Stage.WAITING) and token.epoch == self._highest:
            self._rest()
        probe = self._probe
        if self._stage is not Stage.PROBING or probe is None or self.ring is None or token.epoch != self.ring.ballot:
            return
        if token.sender == probe.suspect and token.token_number >= probe.token_number:
            self._rest()

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
            cycle = len(self.ring.ring) * self._timing.token_period_ns
            self._barred[guilty] = now + CLOCK_BAR_CYCLES * cycle
            self._accused.clear()
            self._wait(now)

    # Ballots ------------------------------------------------------------------------------------

    def _wait(self, now: int) -> None:
        """Hold a ballot when our turn comes: servers of higher rank, and those that collided, wait longer."""
        self._stage = Stage.WAITING
        self._probe = None
        self._next_at = now + self._rank * (self._timing.reformation_ns) + self._backoff()

    def _backoff(self) -> int:
        """A part of δ_N that depends on server and ballot alone: collisions do not repeat."""
        seed = f"{self.server}/{self._highest}".encode()
        part = int.from_bytes(blake2b(seed, digest_size=4).digest())
        return part * self._timing.detect_ns >> 32 if self._highest != NO_EPOCH else 0

    def _rest(self) -> None:
        self._stage = Stage.IDLE
        self._next_at = NEVER

    def _on_timer(self, now: int) -> None:
        match self._stage:
            case Stage.PROBING:
                self._send_probe(now)
            case Stage.WAITING:
                self._begin(now)
            case Stage.INVITING:
                self._go_on(now)
            case Stage.IDLE if self.ring is None:
                self._wait(now)
            case Stage.IDLE:
                self._next_at = NEVER

    def _begin(self, now: int) -> None:
        """A ballot above all that we have seen, on disk before anybody hears of it."""
        ballot = Epoch(self._highest.number + 1, self.server)
        self._highest = ballot
        self._ballot = Ballot(ballot)
        self._stage = Stage.INVITING
        self._out.append(Persist(BallotChosen(ballot)))
        self._send_invite(now)

    def _send_invite(self, now: int) -> None:
        ballot = self._ballot
        if ballot is None:
            return
        ballot.attempts += 1
        self._out.append(Multicast(self._invite(ballot.epoch)))
        # The first invitation goes out twice: whoever misses it would come too late for the ring.
        again = ballot.attempts == 1 and not ballot.repeated
        ballot.attempts -= again
        ballot.repeated = True
        self._next_at = min(now + (self._timing.grace_ns // 2 if again else self._timing.retry_ns), ballot.decide_at)

    def _invite(self, ballot: Epoch) -> Invite:
        return Invite(self._stripe, self.ring.ballot if self.ring else NO_EPOCH, self.server, ballot)

    def _on_join(self, vote: Join, now: int) -> None:
        """Count a vote; a member that missed the result gets it again."""
        self._highest = max(self._highest, vote.ballot)
        if self.ring is not None and vote.ballot <= self.ring.ballot and vote.epoch < self.ring.ballot:
            self._tell(vote.sender, self.ring, now)
            return
        ballot = self._ballot
        if ballot is None or vote.ballot != ballot.epoch:
            return
        known = ballot.votes.get(vote.sender)
        if known is not None and len(vote.heard) < len(known.heard):
            # A copy of an earlier vote: within a ballot a member only comes to hear more.
            return
        ballot.votes[vote.sender] = vote
        formation = self._formation(now)
        if formation is None:
            return
        if len(formation.ring) == len(formation.best.universe) or (
            ballot.patient and self._unanimous(formation, ballot)
        ):
            self._decide(ballot, formation, now)
        elif ballot.decide_at == NEVER and not self._starting(formation, ballot):
            ballot.decide_at = now + self._timing.grace_ns
            self._next_at = min(self._next_at, ballot.decide_at)

    @staticmethod
    def _unanimous(formation: Formation, ballot: Ballot) -> bool:
        return len(formation.ring) == len(ballot.votes)

    def _starting(self, formation: Formation, ballot: Ballot) -> bool:
        """A market that starts has time to wait for everybody; one that is down has not."""
        return not formation.best.held and ballot.attempts <= self._timing.retries_max

    def _formation(self, now: int) -> Formation | None:
        self._barred = {site: until for site, until in self._barred.items() if until > now}
        if self._ballot is None:
            return None
        return form(self._ballot.votes, self._regions, self._barred, self.cut_key, self.enough)

    def _go_on(self, now: int) -> None:
        """Decide after the grace; invite again; or give this ballot up for a higher one."""
        ballot = self._ballot
        if ballot is None:
            self._rest()
            return
        formation = self._formation(now)
        last = ballot.attempts > self._timing.retries_max
        if formation is not None and (last or now >= ballot.decide_at):
            if ballot.patient or self._unanimous(formation, ballot):
                self._decide(ballot, formation, now)
                return
            # Votes are multicast, and the next ones say who heard them: a lost packet is not a broken pair.
            ballot.patient = True
            ballot.decide_at = now + self._timing.retry_ns + self._timing.grace_ns
            self._next_at = ballot.decide_at
            return
        if formation is None:
            ballot.decide_at = NEVER
        if not last:
            self._send_invite(now)
            return
        self._ballot = None
        self._wait(now)

    def _decide(self, ballot: Ballot, formation: Formation, now: int) -> None:
        """One NEWRING per ballot, on disk first."""
        best, timing = formation.best, self._timing
        earliest = now + timing.token_period_ns + 2 * timing.clock_error_ns
        start = max(best.instant + timing.token_period_ns, earliest) if best.held else earliest
        ring = NewRing(
            self._stripe,
            ballot.epoch,
            self.server,
            ballot.epoch,
            formation.ring,
            best.held + 1,
            best.next_sequence,
            start,
            best.epoch,
            best.held,
            best.digest,
            formation.holders,
            tuple([ballot.votes[site].commit for site in formation.ring]),
            best.universe,
            best.next_numbers,
        )
        self._out.append(Persist(RingDecided(ring)))
        self._out.append(Multicast(ring))
        self._adopt(ring)

    def _adopt(self, ring: NewRing) -> None:
        """This is the ring now; the next ballot that only lets sites in waits for a few cycles of it."""
        same = self.ring is not None and sorted(self.ring.ring) == sorted(ring.ring)
        self._planned.in_vain = self._planned.in_vain + 1 if same else 0
        cycles = PLANNED_CYCLES << min(self._planned.in_vain, 6)
        self._planned.not_before = ring.start + cycles * len(ring.ring) * self._timing.token_period_ns
        self.ring = ring
        self._ballot = None
        self._probe = None
        self._excused.clear()
        self._alive.clear()
        self._accused.clear()
        self._rest()
