"""Bringing one log to the cut of a new ring (protocol §5, step 4).

A stale site may hold tokens *below* the cut that were never part of the surviving log. The chained digest tells:
walking down from the cut, the first token whose predecessor's digest is also ours marks the common prefix.

Where the holders have let go what lies between, a checkpoint takes the place of the common prefix (`ring.rejoin`).
The walk down from the cut must end in its digest. A checkpoint beyond the cut, of the new epoch itself, is proven by
the token of that epoch that continues it. A log that shares nothing with the cut above its own floor, because another
history was released, and one that was never begun, need a checkpoint in any case.

The way may be longer than a ring waits for its members, and then the next ring comes first. So what was fetched counts
on the way to that one too: its cut most often continues the other's, and the chain tells where it does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from isocast.ring.answers import holdings
from isocast.ring.court import Court
from isocast.ring.effects import FetchCheckpoint
from isocast.ring.inputs import CheckpointFetched
from isocast.ring.ledger import Checkpoint, Ledger, LogEntry, universe_after
from isocast.ring.notary import Notary
from isocast.ring.orders import first_disorder
from isocast.ring.receiver import Testimony
from isocast.ring.recovery import RANGE_FROM, RANGE_TOKENS
from isocast.ring.rejoin import Rejoin, continues
from isocast.ring.settings import RingSettings
from isocast.ring.token import PartStore, run_digest
from isocast.terms.ids import Epoch, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.orders import order_number, order_of
from isocast.wire.packets import Data, Nack, NewRing, Range, RangeReply, RangeRequest, Repairable, Token, TokenPart
from isocast.wire.signing import SignedKind
from isocast.wire.token_body import token_digest

__all__ = ["CutFetch", "Fetched", "Reconciled", "Reconciliation", "RingSite", "WantedMessages", "WantedTokens"]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Keep the log up to `keep`; then comes `suffix`, up to the cut.

    With a checkpoint, at token `keep`, nothing of the log is kept.
    """

    keep: int
    suffix: tuple[LogEntry, ...]
    checkpoint: Checkpoint | None = None
    proof: Token | None = None
    """The token of the new epoch that continues a checkpoint beyond the cut: it comes next."""


@dataclass(frozen=True, slots=True)
class WantedTokens:
    """Ask for a range of tokens."""

    kind: Range
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class WantedMessages:
    """Ask for messages of one token."""

    token_number: int
    labels: tuple[tuple[NodeId, int], ...]


@dataclass(slots=True)
class Fetched:
    """What holders sent. The chain proves a token, its digests prove the messages."""

    tokens: dict[int, Token] = field(default_factory=dict)
    messages: dict[tuple[NodeId, int], Data] = field(default_factory=dict)


class Reconciliation:
    """Collects what lies between the common prefix and the cut."""

    def __init__(
        self, target: NewRing, ledger: Ledger, fetched: Fetched | None = None, notary: Notary | None = None
    ) -> None:
        """Towards the ring `target`, from what `ledger` holds; the ledger must not change meanwhile.

        `fetched` is what was collected on the way to other rings, and what is collected now.
        """
        self.target = target
        self.parted = NEVER
        """When a checkpoint was adopted: this site's log has other tokens than the ring's above this one."""
        self._ledger = ledger
        self._notary = notary or Notary()
        fetched = fetched or Fetched()
        self._tokens = fetched.tokens
        self._messages = fetched.messages
        self._distrusted: dict[NodeId, None] = {}
        self._parts = PartStore()
        self._keep: int | None = None
        self._expected = target.cut_token
        self._digest = target.cut_digest
        self._entries: list[LogEntry] = []
        self._base: Checkpoint | None = None
        self._proof: Token | None = None
        self._walk()

    @property
    def lost(self) -> bool:
        """Whether nothing that holders could send leads from this site's log to the cut."""
        if self._base is not None or self._keep is not None:
            return False
        return self._expected <= self._ledger.collected or not self._ledger.universe

    @property
    def above(self) -> int:
        """Above which token a checkpoint helps."""
        if self._keep is not None:
            return self._keep
        # What the walk has come to, or passed, of this site's own log is not the ring's: nothing is lost with it.
        return -1 if self.lost or self._expected <= self._ledger.held else self._ledger.held

    @property
    def has_checkpoint(self) -> bool:
        """Whether a checkpoint takes the place of the common prefix."""
        return self._base is not None

    def adopt(self, checkpoint: Checkpoint) -> bool:
        """Go down to a checkpoint instead of this site's own log; whether that is possible."""
        number, target = checkpoint.token_number, self.target
        beyond = number > target.cut_token
        fits = checkpoint.epoch == target.ballot if beyond else checkpoint.epoch < target.ballot
        if number <= self.above or not fits or not checkpoint.universe:
            return False
        if self._ledger.universe:
            self.parted = min(self.parted, self._expected)
        if not beyond and (number > self._expected or self._keep is not None):
            # The walk has passed it: what it found there decides.
            self._expected, self._digest = target.cut_token, target.cut_digest
        self._keep = None
        self._entries.clear()
        self._base = checkpoint.copy()
        if not beyond:
            self._walk()
        return self._base is not None

    def refuse(self) -> None:
        """Forget a checkpoint that leads nowhere."""
        if self._base is not None:
            self._base, self._keep = None, None
            self._entries.clear()

    @property
    def _beyond(self) -> bool:
        return self._base is not None and self._base.token_number > self.target.cut_token

    @property
    def _held(self) -> int:
        return self._ledger.held if self._base is None else self._base.token_number

    def reaches(self, low_water: int) -> bool:
        """Whether a holder that has tokens from here on has the next one of the way down through this site's log."""
        return self._keep is None and low_water <= self._expected <= self._held

    @property
    def _floor(self) -> int:
        return self._ledger.collected if self._base is None else self._base.token_number

    @property
    def progress(self) -> int:
        """Grows with every token that is proven or complete."""
        return self.target.cut_token - self._expected + len(self._entries) + (self._keep is not None)

    def offer(self, item: Repairable) -> None:
        """A packet from a holder."""
        match item:
            case Data():
                self._messages[item.sender, item.number] = item
            case Token() if self._beyond:
                self._prove(item)
            case Token():
                # Above the point that the walk has reached the chain is proven: nothing replaces it.
                if self._floor < item.token_number <= self._expected:
                    self._tokens[item.token_number] = item
                    self._walk()
            case TokenPart():
                token = self._parts.add(item)
                if token is not None:
                    self.offer(token)

    def _prove(self, token: Token) -> None:
        """A token of the new epoch continues a checkpoint beyond the cut, or shows that it is none."""
        base = self._base
        if base is None or token.epoch != self.target.ballot or token.token_number != base.token_number + 1:
            return
        if not self._notary.is_genuine(token):
            return
        if continues(token, base):
            self._keep, self._proof = base.token_number, token
        else:
            self.refuse()

    def _walk(self) -> None:
        """Go down from the cut while our own log differs and the next token is here."""
        while self._keep is None and not self._beyond:
            number, base = self._expected, self._base
            if base is not None and number == base.token_number:
                if base.digest != self._digest:
                    self.refuse()
                    return
                self._keep = number
                return
            if base is None and self._ledger.universe and self._ledger.digest_at(number) == self._digest:
                self._keep = number
                return
            token = self._tokens.get(number)
            if token is None:
                return
            if token_digest(token) != self._digest:
                # A holder's honest answer never differs from the chain: wait for another one.
                del self._tokens[number]
                return
            self._expected, self._digest = number - 1, token.prev_digest

    def wanted(self) -> WantedTokens | WantedMessages:
        """What to ask a holder for next.

        A site that is a token or two behind has most of the messages: it asks for the tokens alone, and then for
        what it lacks of them. One that was away asks for everything. One whose own tokens are not the ring's goes down
        through them twice as far each time.
        """
        base = self._base
        if base is not None and self._beyond:
            return WantedTokens(Range.TOKENS, base.token_number + 1, base.token_number + RANGE_TOKENS)
        held = self._held
        near = base is None and self.target.cut_token - held < RANGE_FROM
        kind = Range.HEADS if near else Range.TOKENS
        if self._keep is None:
            last = self._expected
            lowest = min(held + 1, 2 * last - held)
            first = min(last, max(lowest, last - RANGE_TOKENS + 1, self._floor + 1))
            return WantedTokens(kind, first, last)
        first = self._keep + 1 + len(self._entries)
        if near:
            return WantedMessages(first, tuple(self._missing(self._tokens[first])))
        return WantedTokens(kind, first, min(first + RANGE_TOKENS - 1, self.target.cut_token))

    def _missing(self, token: Token) -> list[tuple[NodeId, int]]:
        return [
            (run.source, number)
            for run in token.runs
            for number in range(run.first, run.first + run.count)
            if self._message(run.source, number) is None
        ]

    def result(self) -> Reconciled | None:
        """Everything, once it is complete."""
        if self._keep is None:
            return None
        reveal = self._reveal(self._keep + len(self._entries))
        for number in range(self._keep + 1 + len(self._entries), self.target.cut_token + 1):
            token = self._tokens[number]
            entry = self._entry(token, reveal)
            if entry is None:
                return None
            self._entries.append(entry)
            reveal = token.reveal
        if self._base is not None and not self._leads_to_cut(self._base):
            self.refuse()
            return None
        return Reconciled(self._keep, tuple(self._entries), self._base, self._proof)

    def agrees(self) -> bool:
        """Whether the log, complete up to the cut, says what the ring says: U there, and the sequence after it.

        And whether an operator ordered what it says of the market, and then the ring, if that is forced.
        """
        if self._base is not None or self._keep is None:
            return True
        ledger, ring = self._ledger, self.target
        universe, tokens = ledger.universe_at(self._keep), [entry.token for entry in self._entries]
        if not self._in_order(tokens, ledger.order_at(self._keep)):
            return False
        for token in tokens:
            universe = universe_after(universe, token)
        kept = ledger.entries.get(self._keep)
        last = tokens[-1] if tokens else kept.token if kept is not None else None
        following = ledger.floor.next_sequence if last is None else last.first_sequence + last.count
        return following == ring.first_sequence and (universe == ring.universe or ring.forced)

    def _in_order(self, tokens: Sequence[Token], last: int) -> bool:
        """Whether orders continue those up to `last`, and the one of a forced ring those of the log before it."""
        if not self._notary.verifies:
            return True
        if first_disorder(tokens, last, self._notary) is not None:
            return False
        if not self.target.forced:
            return True
        last = max([last, *[order_number(entry) for token in tokens for entry in token.control]])
        if order_of(self.target.order).number > last:
            return True
        self._notary.refuse(SignedKind.CONTROL)
        return False

    def _leads_to_cut(self, base: Checkpoint) -> bool:
        """What the chain does not prove, the ring tells: the sequence after the cut, and U there."""
        if self._beyond:
            return True
        state, ring = base.copy(), self.target
        if not self._in_order([entry.token for entry in self._entries], base.order):
            return False
        for entry in self._entries:
            state.advance(entry)
        universe = state.universe == ring.universe or ring.forced
        return state.next_sequence == ring.first_sequence and universe

    def _reveal(self, number: int) -> bytes:
        """The nonce revealed in a token of the common prefix or of the suffix."""
        if self._entries:
            return self._entries[-1].token.reveal
        if self._base is not None:
            return self._base.reveal
        return self._ledger.reveal_at(number)

    def _entry(self, token: Token, previous_reveal: bytes) -> LogEntry | None:
        found: dict[tuple[NodeId, int], Data] = {}
        for run in token.runs:
            messages = [self._message(run.source, number) for number in range(run.first, run.first + run.count)]
            whole = [message for message in messages if message is not None]
            if len(whole) < run.count:
                return None
            if run_digest(whole) != run.digest:
                # A copy is not what the owner had. From now on only holders' count; if it was one of those, new ones.
                if run.source in self._distrusted:
                    for message in whole:
                        del self._messages[message.label]
                self._distrusted[run.source] = None
                return None
            found.update({(message.sender, message.number): message for message in whole})
        return self._ledger.entry(token, found, previous_reveal)

    def _message(self, source: NodeId, number: int) -> Data | None:
        """From a holder, from what waits, or from our own tokens that are to be cut."""
        found = self._messages.get((source, number))
        if found is not None or source in self._distrusted:
            return found
        found = self._ledger.waiting.get((source, number))
        if found is not None:
            return found
        for token_number in range(self._ledger.held, self._ledger.collected, -1):
            for message in self._ledger.entries[token_number].messages:
                if message.sender == source and message.number == number:
                    return message
        return None


class RingSite(Protocol):
    """All that the reformation may ask of a site's receiver, and order it to do."""

    @property
    def site(self) -> NodeId:
        """Its number."""

    @property
    def settings(self) -> RingSettings:
        """Those of its stripe."""

    @property
    def promised(self) -> Epoch:
        """prom: it takes part in no ballot below."""

    @property
    def accepted(self) -> Epoch:
        """e_acc: the epoch that it is in."""

    @property
    def lineage(self) -> Epoch:
        """The epoch that its votes name."""

    @property
    def ring(self) -> NewRing | None:
        """The ring of that epoch."""

    @property
    def held(self) -> int:
        """h: the newest token that it holds with everything before it."""

    @property
    def ledger(self) -> Ledger:
        """Its log, to be read."""

    @property
    def court(self) -> Court:
        """Who was convicted."""

    @property
    def notary(self) -> Notary:
        """Its hand and eye."""

    @property
    def distrusted(self) -> Mapping[NodeId, int]:
        """Owners that lied, and until when they are not believed."""

    def testify(self, ballot: Epoch, now: int) -> Testimony:
        """What its vote for a ballot says."""

    def catch_liar(self, entries: tuple[LogEntry, ...]) -> NodeId | None:
        """Who is known to lie in what is to continue its log."""

    def distrust(self, site: NodeId, now: int) -> None:
        """Do not believe an owner for a while."""

    def seal(self, ballot: Epoch) -> None:
        """Promise a ballot."""

    def stray(self, ring: NewRing, parted: int) -> None:
        """Say that its log parted from the ring's, before a checkpoint takes its place."""

    def install(
        self, ring: NewRing, keep: int, suffix: tuple[LogEntry, ...], now: int, checkpoint: Checkpoint | None = None
    ) -> None:
        """Enter a ring with everything up to its cut."""

    def on_token(self, token: Token, now: int) -> None:
        """Take a token of the ring that it is on."""


class CutFetch:
    """A site's way to the cut of each new ring: what it asks for next, and when only a checkpoint can help."""

    def __init__(
        self,
        site: NodeId,
        settings: RingSettings,
        reconciliation_class: type[Reconciliation],
        notary: Notary | None = None,
    ) -> None:
        """On its way to no ring."""
        self._notary = notary or Notary()
        self.rejoin = Rejoin(settings.timing)
        self.progressed = False
        """Whether the latest offer proved or completed a token."""
        self._site = site
        self._stripe = settings.stripe
        self._reconciliation_class = reconciliation_class
        self._reconciliation: Reconciliation | None = None
        self._fetched = Fetched()
        self._asked: WantedTokens | WantedMessages | None = None

    @property
    def reconciliation(self) -> Reconciliation | None:
        """What is known of the present target; None on the way to no ring."""
        return self._reconciliation

    @property
    def target(self) -> Epoch | None:
        """The ballot of the ring whose cut is fetched."""
        return self._reconciliation.target.ballot if self._reconciliation else None

    def begin(self, ring: NewRing, ledger: Ledger) -> None:
        """Work towards a ring, from what the ledger holds."""
        self._reconciliation = self._reconciliation_class(ring, ledger, self._fetched, self._notary)
        self.rejoin.reset()

    def drop(self) -> None:
        """Give the target up; what was fetched stays."""
        self._reconciliation = None

    def offer(self, item: Repairable) -> Reconciled | None:
        """Take a packet from a holder; everything up to the cut, once it is complete."""
        reconciliation = self._reconciliation
        if reconciliation is None:
            return None
        before = reconciliation.progress
        reconciliation.offer(item)
        result = reconciliation.result()
        self.progressed = reconciliation.progress > before
        return result

    @property
    def moved_on(self) -> bool:
        """Whether what is wanted now was not asked for before."""
        reconciliation = self._reconciliation
        if reconciliation is None:
            return False
        match self._asked, reconciliation.wanted():
            case WantedTokens() as before, WantedTokens() as after:
                return after.first > before.last or after.last < before.first
            case WantedMessages() as before, WantedMessages() as after:
                return after.token_number != before.token_number
            case _:
                return True

    def request(self, reconciliation: Reconciliation) -> Nack | RangeRequest:
        """What to ask a holder for next, addressed to the ring that the site is entering: holders are there already."""
        ballot = reconciliation.target.ballot
        self._asked = reconciliation.wanted()
        match self._asked:
            case WantedTokens(kind, first, last):
                return RangeRequest(self._stripe, ballot, self._site, kind, first, last)
            case WantedMessages(number, labels):
                return Nack(
                    self._stripe, ballot, self._site, number, has_token=True, parts_held=0, listed=holdings(labels)
                )

    def gone(self, reply: RangeReply, others: Sequence[NodeId], now: int) -> bool:
        """Take note of a holder that has let go what is lacking; when all have, a checkpoint is wanted."""
        reconciliation = self._reconciliation
        if reconciliation is None or reconciliation.reaches(reply.low_water):
            return False
        if not self.rejoin.gone(reply, self._lacking, others, now):
            return False
        if self.rejoin.wanting:
            reconciliation.refuse()
        return True

    @property
    def _lacking(self) -> int:
        """The first token of what was asked for; 0 for nothing."""
        match self._asked:
            case WantedTokens(_, first, _):
                return first
            case WantedMessages(number, _):
                return number
            case None:
                return 0

    def adopt(self, fetched: CheckpointFetched, now: int) -> bool:
        """Take a checkpoint instead of the common prefix, if it can be one; the chain will tell."""
        adopted = self._reconciliation is not None and self._reconciliation.adopt(fetched.checkpoint)
        if adopted:
            self.rejoin.reset()
        elif self.rejoin.wanting:
            self.rejoin.refuse(now)
        return adopted

    def needs_checkpoint(self, reconciliation: Reconciliation, now: int) -> bool:
        """Whether asking holders leads nowhere."""
        if reconciliation.lost and not self.rejoin.active:
            self.rejoin.want(now)
        return self.rejoin.active

    def wish(self, givers: Sequence[NodeId], reconciliation: Reconciliation, now: int) -> list[FetchCheckpoint]:
        """For a checkpoint, when it is time to ask for one."""
        wish = self.rejoin.due(givers, reconciliation.above, now)
        return [] if wish is None else [wish]

    def install(self, ring: NewRing, result: Reconciled, receiver: RingSite, now: int) -> None:
        """The receiver enters the ring with everything up to its cut; the site is on its way no more."""
        self._reconciliation = None
        self._fetched = Fetched()
        self.rejoin.reset()
        receiver.install(ring, result.keep, result.suffix, now, result.checkpoint)
        if result.proof is not None:
            receiver.on_token(result.proof, now)
