"""A reformation server, X_R (§4.3; protocol §5): probes suspects, compares clocks, runs ballots, forms rings.

    idle ──suspicion──▶ probing ──no answer, or stuck──▶ waiting ──its turn──▶ inviting ──majority, grace──▶ idle
      ▲                    └──alive and ahead──▶ idle        └──another ballot──▶ idle       └─ in vain ─▶ waiting

A server that fails half-way is just a higher ballot: nothing that it did binds anybody but by promises. When a ring
begins is read from the clocks of its voters, never from the server's alone (`VotedClocks`).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TypeAlias, assert_never

from isocast.reformation.forming import (
    Ballot,
    Bar,
    Excuse,
    Forcing,
    Formation,
    Planned,
    Probe,
    ServerSnapshot,
    ServerState,
    Stage,
    cut_key,
    enough,
    form,
    form_forced,
    form_uncertified,
)
from isocast.reformation.member import FAR_START
from isocast.reformation.votes import VotedClocks, is_voted, shown_votes
from isocast.ring.court import Court
from isocast.ring.effects import (
    BallotChosen,
    DriverEffect,
    LieProven,
    Multicast,
    Persist,
    RingDecided,
    Unicast,
    UniverseForced,
)
from isocast.ring.inputs import ClockJudged, DriverInput, ForceRequested, PacketsArrived, TimerFired
from isocast.ring.ledger import UNIVERSE_MIN
from isocast.ring.notary import Notary
from isocast.ring.release import majority
from isocast.ring.settings import RingSettings, StartPolicy
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import NO_EPOCH, Epoch, NodeId, is_site
from isocast.terms.instants import NEVER, SECOND
from isocast.wire.orders import force_entry
from isocast.wire.packets import (
    Data,
    Disclose,
    Invite,
    Join,
    LineAck,
    LineAsk,
    Lines,
    Nack,
    NewRing,
    Packet,
    Pending,
    Proof,
    RangeReply,
    RangeRequest,
    Receipt,
    Refuse,
    ReleasedPacket,
    Repair,
    SecondaryToken,
    SourceChain,
    Standing,
    Suspect,
    Suspicion,
    Token,
    TokenPart,
)

__all__ = ["Judging", "ReformationServer", "ServerSnapshot", "ServerState"]


# What a reformation server makes of suspicions (protocol §5, step 1): tell, probe, bar, or hold a ballot.
#
# A suspicion only informs. Whoever speaks of itself, or of a server's silence, is believed; who accuses another has
# that one probed first; a site that asks to come in, or shall leave, gets a planned ballot, and each that changes
# nothing makes the next one wait longer. A site whose clock is wrong, by the votes or by its tokens, stays off the
# ring, longer each time that it was let in too early.
#
# Servers take turns by rank. A ballot that brings no token moves its server behind the others, whatever the reason was:
# its clock, its network, or chance.


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
        notary: Notary | None = None,
    ) -> None:
        """Nobody has complained of anything. `servers` are all of them, by rank, as far as they are known."""
        self.notary = notary or Notary()
        self.court = Court(self.notary)
        self._heard: dict[tuple[Epoch, int], Token] = {}
        """The newest tokens, as they were heard first."""
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
        self._out: list[ReformationServerEffect] = []

    def _on_suspect(self, suspect: Suspect, now: int) -> None:
        """Judge a suspicion: tell the stale what is new, probe the accused, or go to a ballot."""
        self._highest = max(self._highest, suspect.promised, suspect.epoch)
        current = self.ring.ballot if self.ring else NO_EPOCH
        stranded = suspect.reason is Suspicion.STRANDED and suspect.promised == current
        if self.ring is not None and suspect.epoch < current and suspect.promised <= current and not stranded:
            self._tell(suspect.sender, self.ring, now)
            if self._stage is Stage.IDLE and self.notary.is_outdated(self.ring):
                # Sites with the newest roster refuse a ring signed under an older one: form it anew.
                self._wait(now)
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
        """A majority against one site, or one site against a majority: that one's clock is out of its bound."""
        if self.ring is None:
            return
        self._accused.setdefault(suspect.suspect, {})[suspect.sender] = None
        accusers = self._accused[suspect.suspect]
        complaints = [accused for accused, by in self._accused.items() if suspect.sender in by]
        half, guilty = len(self.ring.ring) // 2, None
        if len(accusers) > half:
            guilty = suspect.suspect
        elif len(complaints) > half:
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
        """A ring was decided: sites that voted with a wrong clock cannot ask to come in for a while."""
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
        # The ring may have been formed for another reason: then a site that is to leave need not wait.
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
        known = self.ring.ballot if self.ring else NO_EPOCH
        return self.notary.sign(Invite(self._stripe, known, self.server, ballot))


VAIN_MOST = 8
"""Doublings of the wait between ballots in vain; a second, or four reformations, is the longest anyway."""
TOKENS_WATCHED = 64
"""Tokens in which a server looks for lies: those of some cycles."""
FORCE_REFORMATIONS = 16
"""How long an operator's word for a forced U holds: sixteen times what a ballot takes."""


ReformationServerInput: TypeAlias = DriverInput | ForceRequested
ReformationServerEffect: TypeAlias = DriverEffect | UniverseForced | LieProven


class ReformationServer(Judging):
    """The machine of one server."""

    cut_key = staticmethod(cut_key)
    enough = staticmethod(enough)

    def __init__(
        self,
        server: NodeId,
        settings: RingSettings,
        rank: int,
        regions: Mapping[NodeId, str],
        state: ServerState | None = None,
        servers: tuple[NodeId, ...] = (),
        notary: Notary | None = None,
    ) -> None:
        """Start, or restart, from what the disk says. `servers` are all of them, by rank; without them rank counts."""
        ring = state.ring if state else None
        highest = state.ballot if state else NO_EPOCH
        super().__init__(server, settings, rank, regions, ring, highest, servers, notary)
        self._forcing: Forcing | None = None
        self._short_since: int | None = None
        """Since when ballots have been held in vain."""
        self._vain = 0
        """Ballots in a row for which the same sites voted, and too few."""
        self._vain_voters: tuple[NodeId, ...] = ()
        self._stood_back = NO_EPOCH
        self._asked_at = -NEVER
        self._last_now = -NEVER
        if self.ring is None:
            # A first ballot by rank, counted from whenever the clock is first looked at.
            self._next_at = 0
        else:
            self._highest = max(self._highest, self.ring.ballot)

    # The contract -------------------------------------------------------------------------------

    def step(self, event: ReformationServerInput, now: int) -> tuple[ReformationServerEffect, ...]:
        """Take one input at local time `now`."""
        if now < self._last_now:
            self._set_back(self._last_now - now)
        elif now > self._next_at + self._timing.retry_ns and self._last_now > -NEVER:
            self._slept(now - self._next_at)
        self._last_now = now
        match event:
            case PacketsArrived(packets):
                for packet in packets:
                    self._on_packet(packet, now)
            case TimerFired():
                if now >= self._next_at:
                    self._on_timer(now)
            case ForceRequested(universe, order):
                self._force(universe, order, now)
            case ClockJudged():
                # A ring begins by the clocks of its voters.
                pass
            case _:
                assert_never(event)
        effects = tuple(self._out)
        self._out.clear()
        return effects

    def next_deadline(self) -> int:
        """When the machine must be woken."""
        return self._next_at

    def snapshot(self) -> ServerSnapshot:
        """The state, for checkers and console."""
        votes = len(self._ballot.votes) if self._ballot else 0
        ring, forcing = self.ring.ballot if self.ring else None, self._forcing is not None
        return ServerSnapshot(self.server, self._stage, self._highest, ring, votes, forcing, self.clock_ahead_ns)

    def _set_back(self, span_ns: int) -> None:
        """The clock was set back: every waiting time moves with it."""
        if self._next_at < NEVER:
            self._next_at -= span_ns
        if self._ballot is not None and self._ballot.decide_at < NEVER:
            self._ballot.decide_at -= span_ns
        self._excused = {pair: Excuse(at - span_ns, token) for pair, (at, token) in self._excused.items()}
        self._planned.not_before -= span_ns
        self._parting.not_before -= span_ns
        if self._forcing is not None:
            self._forcing.until -= span_ns
        if self._short_since is not None:
            self._short_since -= span_ns
        self._barred = {site: bar._replace(until=bar.until - span_ns) for site, bar in self._barred.items()}
        self._voted.set_back(span_ns)
        self._faltered = {site: at - span_ns for site, at in self._faltered.items()}

    def _slept(self, span_ns: int) -> None:
        """This server should have been woken before: it was stopped, or its clock was set ahead.

        In that time it heard nobody, so it says nothing about a majority, and nothing of an operator's word is used up.
        """
        if self._short_since is not None:
            self._short_since += span_ns
        if self._forcing is not None:
            self._forcing.until += span_ns

    # Packets ------------------------------------------------------------------------------------

    def _on_packet(self, packet: Packet, now: int) -> None:
        if self.notary.verifies and not self._is_believed(packet):
            return
        self._note_news(packet.sender, now)
        match packet:
            case Suspect():
                self._on_suspect(packet, now)
            case Join():
                self._on_join(packet, now)
            case Refuse():
                self._on_refuse(packet, now)
            case NewRing():
                self._on_new_ring(packet, now)
            case Invite() if packet.sender != self.server:
                self._on_rival(packet, now)
            case Token() | TokenPart():
                self._on_token(packet, now)
            case (
                Data() | Receipt() | Nack() | Repair() | Pending() | Standing() | Invite() | SecondaryToken()
                | SourceChain() | ReleasedPacket() | Proof() | RangeRequest() | RangeReply()
                | LineAsk() | LineAck() | Lines() | Disclose()
            ):  # fmt: skip
                pass
            case _:
                assert_never(packet)

    def _is_believed(self, packet: Packet) -> bool:
        """Whether a packet that must be signed is: ballots and rings by their server, votes and tokens by their site.

        A part of a token, a SUSPECT and a REFUSE only inform; a copy of the ring that is known is not looked at again.
        """
        match packet:
            case Invite():
                return packet.sender == packet.ballot.server and self.notary.is_genuine(packet)
            case NewRing():
                known = self.ring is not None and packet.ballot <= self.ring.ballot
                return known or is_voted(packet, self.notary, self._settings.policy)
            case Join() | Token():
                return self.notary.is_genuine(packet)
            case _:
                return True

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
        if invite.ballot > max(self._voted.ballot, self.ring.ballot if self.ring else NO_EPOCH):
            # Somebody may have heard it before us, and voted.
            self._hold(invite.ballot, now - self._timing.detect_ns)
        mine = self._ballot.epoch if self._ballot else NO_EPOCH
        current = self.ring.ballot if self.ring else NO_EPOCH
        if invite.ballot > max(mine, current, self._stood_back) and self._stage is not Stage.IDLE:
            # Once for each ballot: copies of an invitation whose server is dead must not hold us up for ever.
            self._stood_back = invite.ballot
            self._ballot = None
            self._stage = Stage.WAITING
            self._next_at = now + 2 * self._timing.reformation_ns + self._backoff()

    def _hold(self, ballot: Epoch, invited_at: int) -> None:
        """A ballot is being held: see what becomes of it, and what its voters' clocks show."""
        self._try_ballot(ballot)
        self._voted = VotedClocks(ballot, invited_at, self._timing.clock_error_ns)

    def _on_new_ring(self, ring: NewRing, now: int) -> None:
        """A ballot has succeeded, this server's or another's."""
        self._highest = max(self._highest, ring.ballot)
        self._try_ballot(ring.ballot)
        if self.ring is None or ring.ballot > self.ring.ballot:
            self._adopt(ring, now)

    def _watch(self, token: Token, now: int) -> None:
        """An owner that signed two contents of one token is convicted, and the next ring does without it."""
        label = (token.epoch, token.token_number)
        known = self._heard.setdefault(label, token)
        if len(self._heard) > TOKENS_WATCHED:
            del self._heard[min(self._heard)]
        evidence = self.court.weigh(known, token) if known.sender == token.sender else None
        if evidence is None:
            return
        self._out.append(LieProven(evidence))
        if self._ballot is not None:
            self._ballot.votes.pop(evidence.author, None)
        if self.ring is not None and evidence.author in self.ring.ring and self._stage in (Stage.IDLE, Stage.PROBING):
            self._wait(now)

    def _on_token(self, token: Token | TokenPart, now: int) -> None:
        """The ring lives: a suspect that sends its token needs no probe, a market that runs no first ballot."""
        if self.notary.verifies and isinstance(token, Token):
            self._watch(token, now)
        self._highest = max(self._highest, token.epoch)
        self._bear(token.epoch)
        known = self.ring.ballot if self.ring else NO_EPOCH
        if token.epoch > known and not self._asked_at <= now < self._asked_at + self._timing.retry_ns:
            # We missed its NEWRING: members answer a request of an old epoch with the ring.
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

    # Ballots ------------------------------------------------------------------------------------

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
        forcing = self._still_forcing(now)
        self._ballot = (
            Ballot(ballot) if forcing is None else Ballot(ballot, forced=forcing.universe, order=forcing.order)
        )
        self._hold(ballot, now)
        self._stage = Stage.INVITING
        if self._short_since is None:
            self._short_since = now
        self._out.append(Persist(BallotChosen(ballot)))
        self._send_invite(now)

    def _force(self, universe: tuple[NodeId, ...], order: bytes, now: int) -> None:
        """An operator's word: from now on the votes of these sites suffice, and they are U."""
        if len(universe) < UNIVERSE_MIN or not all(map(is_site, universe)):
            raise LocalProtocolError(f"U cannot be forced to {universe}: name at least {UNIVERSE_MIN} sites")
        members = tuple(sorted(set(universe)))
        token_number = self.ring.first_token if self.ring is not None else 0
        if not self.notary.is_ordered(force_entry(self.server, members, order), self._stripe, token_number):
            raise LocalProtocolError("this U is forced by no order of the market's operator: sign one where its key is")
        self._forcing = Forcing(members, now + FORCE_REFORMATIONS * self._timing.reformation_ns, order)
        self._probe = None
        self._begin(now)

    def _still_forcing(self, now: int) -> Forcing | None:
        """What the operator said, as long as it holds."""
        if self._forcing is not None and now >= self._forcing.until:
            self._forcing = None
        return self._forcing

    def _send_invite(self, now: int) -> None:
        ballot = self._ballot
        if ballot is None:
            return
        ballot.attempts += 1
        self._out.append(Multicast(self._invite(ballot.epoch)))
        # The first invitation goes out twice: a site that missed it would come too late for the ring.
        again = ballot.attempts == 1 and not ballot.repeated
        ballot.attempts -= again
        ballot.repeated = True
        self._next_at = min(now + (self._timing.grace_ns // 2 if again else self._timing.retry_ns), ballot.decide_at)

    def _on_join(self, vote: Join, now: int) -> None:
        """Count a vote; a member that missed the result gets it again. Who was convicted has none."""
        if vote.sender in self.court.convicted:
            return
        self._highest = max(self._highest, vote.ballot)
        if self.ring is not None and vote.ballot <= self.ring.ballot and vote.epoch < self.ring.ballot:
            self._tell(vote.sender, self.ring, now)
            return
        if vote.ballot == self._voted.ballot:
            self._voted.hear(vote, now)
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
        if formation.whole or (ballot.patient and formation.unanimous):
            self._decide(ballot, formation, now)
        elif ballot.decide_at == NEVER and not self._starting(formation, ballot):
            ballot.decide_at = now + self._timing.grace_ns
            self._next_at = min(self._next_at, ballot.decide_at)

    def _starting(self, formation: Formation, ballot: Ballot) -> bool:
        """A market that starts has time to wait for everybody; one that is down has not."""
        return not formation.best.held and ballot.attempts <= self._timing.retries_max

    def _formation(self, now: int) -> Formation | None:
        ballot = self._ballot
        if ballot is None:
            return None
        if ballot.forced:
            return form_forced(ballot.votes, ballot.forced, self._regions, self.cut_key)
        barred = self._still_barred(now)
        found = None
        wrong = self._wrong(ballot, now)
        if wrong:
            # Any majority is a quorum: votes with wrong clocks are not needed, nor what only their logs have.
            right = {site: vote for site, vote in ballot.votes.items() if site not in wrong}
            found = form(right, self._regions, barred, self.cut_key, self.enough)
        if found is None:
            found = form(ballot.votes, self._regions, barred, self.cut_key, self.enough)
        if found is None and self._may_do_without_majority(now):
            return form_uncertified(ballot.votes, self._regions, self.cut_key)
        return found

    def _wrong(self, ballot: Ballot, now: int) -> tuple[NodeId, ...]:
        """Voters whose clock is wrong, or whose log ends so far in the future that no ring could go on from it."""
        latest = now + self._voted.ahead_ns() + FAR_START * self._timing.reformation_ns
        beyond = [site for site, vote in ballot.votes.items() if vote.held and vote.instant > latest]
        return (*self._voted.wrong(), *beyond)

    def _may_do_without_majority(self, now: int) -> bool:
        """Only as a policy of the application's, and once a majority has been missing for long enough."""
        if self._settings.policy is not StartPolicy.AVAILABILITY or self._short_since is None:
            return False
        return now >= self._short_since + self._settings.patience_ns

    def _go_on(self, now: int) -> None:
        """Decide after the grace; invite again; or give this ballot up for a higher one."""
        ballot = self._ballot
        if ballot is None:
            self._rest()
            return
        formation = self._formation(now)
        last = ballot.attempts > self._timing.retries_max
        if formation is not None and (last or now >= ballot.decide_at):
            if ballot.patient or formation.unanimous:
                self._decide(ballot, formation, now)
                return
            # Votes are multicast, and the next ones say who heard them: a lost packet is not a broken pair. Asked for
            # at once, they come within 2δ_N, and the ballot stays within its bound.
            ballot.patient = True
            self._out.append(Multicast(self._invite(ballot.epoch)))
            ballot.decide_at = now + 2 * self._timing.detect_ns
            self._next_at = ballot.decide_at
            return
        if formation is None:
            ballot.decide_at = NEVER
        if not last:
            self._send_invite(now)
            return
        self._ballot = None
        self._wait(now)
        if formation is None:
            self._note_vain(ballot)

    def _note_vain(self, ballot: Ballot) -> None:
        """Back off while the same minority votes as the last time, until another site is heard."""
        voters = tuple(sorted(ballot.votes))
        again = self._settings.policy is StartPolicy.MAJORITY and voters == self._vain_voters
        self._vain = min(self._vain + 1, VAIN_MOST) if again else 0
        self._vain_voters = voters
        if self._vain:
            span = min(self._timing.reformation_ns << self._vain, max(SECOND, 4 * self._timing.reformation_ns))
            self._next_at += span // 2 + self._share("vain", span // 2)

    def _note_news(self, sender: NodeId, now: int) -> None:
        """A site that did not vote in the last ballots is heard: the next one may have a majority."""
        if self._vain and self._stage is Stage.WAITING and is_site(sender) and sender not in self._vain_voters:
            self._vain = 0
            self._wait(now)

    def _decide(self, ballot: Ballot, formation: Formation, now: int) -> None:
        """One NEWRING per ballot, on disk first."""
        best, timing = formation.best, self._timing
        earliest = self._members_now(now) + timing.token_period_ns + 2 * timing.clock_error_ns
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
            formation.universe,
            best.next_numbers,
            formation.uncertified,
            formation.forced,
            order=ballot.order,
        )
        if self.notary.verifies:
            voters = [ballot.votes[site] for site in formation.voters]
            ring = self.notary.sign(
                ring._replace(votes=shown_votes(best, voters, formation.ring, majority(formation.universe)))
            )
        self._out.append(Persist(RingDecided(ring)))
        self._out.append(Multicast(ring))
        if ring.forced:
            self._out.append(UniverseForced(ring.ballot, ring.first_token, ring.universe))
        self._adopt(ring, now)

    def _members_now(self, now: int) -> int:
        """What the clocks of most voters show: this server's own time, if it may be one of them."""
        return now + self._voted.ahead_ns()

    def _adopt(self, ring: NewRing, now: int) -> None:
        """This is the ring now; the next ballot that only lets sites in waits for a few cycles of it."""
        self._judge_clocks(ring, now)
        self._plan(ring, now)
        self._forcing = self._short_since = None
        self._vain, self._vain_voters = 0, ()
        self.ring = ring
        self._ballot = None
        self._probe = None
        self._excused.clear()
        self._alive.clear()
        self._accused.clear()
        self._rest()
