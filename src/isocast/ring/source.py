"""A source: sends, resends, and holds a message until it is stable (§2.1, §5; protocol §3).

A message is freed when every member holds it (`stable`), not when it is acknowledged: the owner that
acknowledged it may die with the only copy. After a reformation everything from the new ring's next number on is
sent again; receivers acknowledge each number once, so nothing is lost and nothing is repeated.

All receivers hold a source's tag key, so once in a token period it signs for what tokens have acknowledged (§6): the
chain of its payloads' digests. What the ring ordered in its name and it never sent, it does not take for its own, and
tells.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple, TypeAlias, assert_never

from isocast.ring.disclosures import Discloser, KeyChain
from isocast.ring.effects import (
    BallotChosen,
    EntryAppended,
    LogReplaced,
    Multicast,
    NameForged,
    NumbersForgotten,
    OutboxAppended,
    OutboxFreed,
    Persist,
    PromiseMade,
    PublishAccepted,
    PublishRejected,
    Record,
    RingDecided,
    RingInstalled,
    SourceEffect,
)
from isocast.ring.inputs import ClockJudged, DriverInput, PacketsArrived, PublishRequested, TimerFired
from isocast.ring.notary import Notary
from isocast.ring.settings import RingSettings
from isocast.ring.token import PartStore
from isocast.terms.ids import NO_EPOCH, Epoch, Label, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.limits import SEAL_BYTES
from isocast.wire.packets import (
    NO_DIGEST,
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
    Run,
    SecondaryToken,
    SourceChain,
    Standing,
    Suspect,
    Token,
    TokenPart,
    chained,
    digest_of,
    payload_digest,
)
from isocast.wire.signing import SignedKind
from isocast.wire.token_body import token_digest

__all__ = ["FIRST_WINDOW", "REPEATS_MAX", "OutboxState", "PrimarySource", "PrimarySourceSnapshot", "Seal", "SendWindow"]


# A source's window sizes itself: large enough for what the ring takes in one token, and no larger.
#
# Every token is one round: what was sent well before its instant should be named in it. So the messages that a token
# acknowledges are the product of bandwidth and delay, and the window that carries most is about that many.
#
# 1. While the window is what holds the source back, it grows: twice as large until growth stops paying, then by a fixed
# step, the same for every source.
# 2. Growth has to pay. If a larger window brings less than two fifths of its share in acknowledged messages, the ring
# is full: the window goes back to what it was, and rests.
# 3. Tokens that acknowledge less than two fifths of a full window say that the rest only waits in queues: it shrinks.
# 4. Tokens that come late, a message that two tokens in a row omit, and a reformation are signs of overload: it shrinks
# at once, though not below what the ring takes. While all is acknowledged, such a sign only puts growth off.
#
# Growth by a fixed step and shrinking by a share make the windows of competing sources equal in the long run (Chiu and
# Jain). Random losses alone do not shrink a window: growth keeps paying there. W of the market is the most: receivers
# drop what is further ahead. The grants of tokens are applied on top.


FIRST_WINDOW = 1_024
"""Where a source begins: no burst of an ordinary floor waits for the window to grow."""
LEAST_WINDOW = 64
_STEPS = 32
"""Steps from nothing to the most."""
_PAYS = Fraction(2, 5)
"""Of its share, that a larger window must bring."""
_FULL = Fraction(2, 5)
"""Of a window, that a token acknowledges at least unless the rest waits in queues."""
_SHRUNK = Fraction(4, 5)
_CUT = Fraction(7, 10)
_ROUNDS = 3
"""Tokens over which a window is judged, behind one that still acknowledges what the window before let out."""
_REST = 16
"""Tokens before growth is tried again, and fewer between two cuts."""


class SendWindow:
    """How many messages a source may have sent that no token has acknowledged."""

    def __init__(self, most: int) -> None:
        """Between one message and the market's W."""
        self._most = most
        self._least = min(LEAST_WINDOW, most)
        self._step = max(most // _STEPS, 1)
        self.size = min(FIRST_WINDOW, most)
        self._doubling = True
        self._rest = 0
        self._cut_rest = 0
        self._tokens = -1
        self._total = 0
        self._before: tuple[int, Fraction] | None = None
        """The last smaller window, and what tokens acknowledged of it."""

    def token(self, acknowledged: int, tokens: int = 1, *, limited: bool, overloaded: bool) -> None:
        """A token has come, `tokens` behind the last one that was heard.

        `limited`: the window was full since then. `overloaded`: it came late, or left out what the last one left out.
        """
        self._rest = max(self._rest - tokens, 0)
        self._cut_rest = max(self._cut_rest - tokens, 0)
        if not limited:
            # The application has no more to say: that tells nothing of the ring.
            self._begin()
            return
        if self._tokens >= 0:
            self._total += acknowledged
            self._tokens += tokens
        else:
            self._tokens = 0
        if overloaded:
            self._overload(acknowledged, tokens)
        elif self._tokens >= (1 if self._doubling else _ROUNDS):
            self._judge(Fraction(self._total, self._tokens))

    def reformed(self) -> None:
        """A new ring: the old one may have failed under what it was given."""
        self._change(max(int(self.size * _CUT), self._least))
        self._doubling, self._before, self._rest = False, None, 0

    def _judge(self, carried: Fraction) -> None:
        """What tokens acknowledge of this window decides on the next."""
        size, before = self.size, self._before
        if carried < size * _FULL:
            self._doubling, self._before = False, None
            self._change(max(int(size * _SHRUNK), int(carried), self._least))
        elif before is not None and size > before[0] and carried < self._due(before):
            self._doubling, self._before, self._rest = False, None, _REST
            self._change(before[0])
        elif self._rest or size >= self._most:
            self._before = None
            self._begin()
        else:
            self._before = size, carried
            self._change(min(2 * size if self._doubling else size + self._step, self._most))

    def _due(self, before: tuple[int, Fraction]) -> Fraction:
        """What growth from there must bring to have paid."""
        size, carried = before
        return carried * (1 + _PAYS * Fraction(self.size - size, size))

    def _overload(self, acknowledged: int, tokens: int) -> None:
        """Shrink once per load that is under way, to no less than what the ring takes."""
        carried = self._total // self._tokens if self._tokens > 0 else acknowledged // tokens
        if self._cut_rest or carried >= self.size:
            self._begin()
            return
        self._doubling, self._before, self._rest = False, None, max(self._rest, _REST // 2)
        self._cut_rest = 1 + _ROUNDS
        self._change(max(int(self.size * _CUT), carried, self._least))

    def _change(self, size: int) -> None:
        self.size = size
        self._begin()

    def _begin(self) -> None:
        """Judge anew: the next token still acknowledges what the window before let out."""
        self._tokens, self._total = -1, 0


Seal: TypeAlias = Callable[[int, Label, bytes], bytes]
"""(stripe, label, payload) → the payload as nobody can read it before release; at most SEAL_BYTES longer."""

REPEATS_MAX = 16
"""Tokens between two repetitions of the newest statement, at the most: who was away when it came hears it again."""
KEYS_MAX = 65_536
"""Client keys remembered after their message is stable: a client that retries does so within minutes."""


@dataclass(slots=True)
class OutboxState:
    """What a source's disk says: the messages it still owes, and the keys it has seen."""

    next_number: int = 1
    messages: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    """number → (client's key, payload)."""
    keys: OrderedDict[bytes, int] = field(default_factory=OrderedDict)
    """Oldest first. No plain dict: it walks over all that is gone to find the first of what is left."""
    keys_max: int = KEYS_MAX
    """How many keys are remembered."""
    chain: bytes = NO_DIGEST
    """The source's chain behind the last message that was freed."""

    def apply(self, record: Record) -> None:
        """Take one record."""
        match record:
            case OutboxAppended(key, number, payload):
                self.messages[number] = (key, payload)
                self.keys[key] = number
                self.next_number = number + 1
                if len(self.keys) > self.keys_max:
                    self.keys.popitem(last=False)
            case OutboxFreed(base, chain):
                self.chain = chain
                for number in [number for number in self.messages if number < base]:
                    del self.messages[number]
            case PromiseMade() | EntryAppended() | RingInstalled() | LogReplaced() | BallotChosen() | RingDecided():
                pass  # Of a site's or a server's disk.
            case _:
                assert_never(record)


@dataclass(slots=True)
class _Held:
    payload: bytes
    sent_at: int
    token_number: int = 0
    """The token that acknowledged it; 0 while none has."""
    digest: bytes = field(init=False)
    chain: bytes = NO_DIGEST
    """The source's chain behind it, once it was acknowledged."""

    def __post_init__(self) -> None:
        """The tag, the tokens and the chain need the digest: it is made once."""
        self.digest = payload_digest(self.payload)


class _Doubt(NamedTuple):
    """A signed token that names contents of this source which it never sent."""

    first: int
    last: int
    epoch: Epoch
    token_number: int
    digest: bytes
    """Of the token."""


@dataclass(frozen=True, slots=True)
class PrimarySourceSnapshot:
    """A source's state for checkers and console."""

    source: NodeId
    next_number: int
    base: int
    unacknowledged: int
    unstable: int
    window: int
    epoch: Epoch = NO_EPOCH
    """The newest that it has heard of."""
    acknowledged: int = 1
    """Every number below is in that epoch's log, as far as it knows."""


PrimarySourceInput: TypeAlias = DriverInput | PublishRequested


class PrimarySource:
    """A primary source, S_P, in one of its incarnations."""

    discloser_class = Discloser

    def __init__(
        self,
        source: NodeId,
        settings: RingSettings,
        state: OutboxState | None = None,
        seal: Seal | None = None,
        notary: Notary | None = None,
        chain: KeyChain | None = None,
    ) -> None:
        """Start, or restart with the outbox of the same incarnation; `chain` has the keys, if they are disclosed."""
        self.notary = notary or Notary()
        self._seal = seal
        self._payload_max = settings.payload_max - SEAL_BYTES
        self.source = source
        self._stripe = settings.stripe
        self._timing = settings.timing
        self._own_window = SendWindow(settings.window)
        self._window = self._own_window.size
        self._window_was_full = False
        self._omitted = 0
        """The first message that the newest token should have named and did not; 0 if it named all."""
        self._resend_ns = 2 * settings.timing.token_period_ns
        self._epoch: Epoch = NO_EPOCH
        self._ring: Epoch = NO_EPOCH
        self._newest = 0
        self._parts = PartStore(newest_first=True)
        state = state or OutboxState()
        self._next_number = state.next_number
        self._keys = OrderedDict(state.keys)
        self._keys_max = state.keys_max
        self._held = {number: _Held(payload, -NEVER) for number, (_, payload) in sorted(state.messages.items())}
        self._unacknowledged = len(self._held)
        self._freed = min(self._held, default=self._next_number)
        self._acknowledged = self._freed
        """Every number below is in the sequence, as far as this source knows."""
        self._counted = self._acknowledged
        """Every number below was counted for the window."""
        self._chained = self._freed - 1
        """The last number in the chain."""
        self._chain = state.chain
        self._signed = self._chained, self._chain
        """How far it has signed, and its chain there."""
        self._word = self._first_word()
        """The newest statement, unsigned."""
        self._doubt: _Doubt | None = None
        """Until the ring cuts that token off, or every member holds it."""
        self._following = (0, NO_DIGEST)
        """The newest token that was heard, and which one it says is before it."""
        self._pause = 0
        """Tokens between the last time that it was sent and the next."""
        self._due = 0
        self._deadline = 0 if self._held else NEVER
        self._forgot = False
        """Whether the ring has numbers that the outbox does not know."""
        self._out: list[SourceEffect] = []
        new = self.discloser_class
        self._discloser = None if chain is None else new(source, settings.timing, chain, self._freed)
        self._ask_at = NEVER
        """When to ask for the ring again, if its members must be known and are not."""

    # The contract -------------------------------------------------------------------------------

    def step(self, event: PrimarySourceInput, now: int) -> tuple[SourceEffect, ...]:
        """Take one input at local time `now`."""
        match event:
            case PacketsArrived(packets):
                for packet in packets:
                    self._on_packet(packet, now)
            case PublishRequested(key, payload):
                self._publish(key, payload, now)
            case TimerFired():
                self._resend_due(now)
            case ClockJudged():
                # A source promises nothing by its clock.
                pass
            case _:
                assert_never(event)
        if self._discloser is not None:
            self._disclose(self._discloser, now)
        effects = tuple(self._out)
        self._out.clear()
        return effects

    def next_deadline(self) -> int:
        """When the machine must be woken."""
        if self._discloser is None:
            return self._deadline
        return min(self._deadline, self._discloser.next_deadline(), self._ask_at)

    def snapshot(self) -> PrimarySourceSnapshot:
        """The state, for checkers and console."""
        return PrimarySourceSnapshot(
            self.source,
            self._next_number,
            self._freed,
            self._unacknowledged,
            len(self._held),
            self._window,
            self._epoch,
            self._acknowledged,
        )

    # Publishing ---------------------------------------------------------------------------------

    def _publish(self, key: bytes, payload: bytes, now: int) -> None:
        """Take a batch once per key; persist before sending; refuse what the window does not allow."""
        known = self._keys.get(key)
        if known is not None:
            self._out.append(PublishAccepted(key, Label(self.source, known)))
            return
        if self._forgot:
            rule = "this source's outbox lacks numbers that the ring has: it must begin a new incarnation"
            self._out.append(PublishRejected(key, rule))
            return
        if len(payload) > self._payload_max:
            self._out.append(
                PublishRejected(key, f"payload of {len(payload)} bytes: at most {self._payload_max} fit a packet")
            )
            return
        if self._unacknowledged >= self._window:
            self._window_was_full = True
            rule = f"{self._unacknowledged} messages wait for a token and the window is {self._window}: try again later"
            self._out.append(PublishRejected(key, rule))
            return
        number = self._next_number
        self._next_number += 1
        self._keys[key] = number
        if len(self._keys) > self._keys_max:
            self._keys.popitem(last=False)
        if self._seal is not None:
            # A number is sealed once, and the outbox keeps the result: a nonce never meets two payloads.
            payload = self._seal(self._stripe, Label(self.source, number), payload)
        self._held[number] = _Held(payload, now)
        self._unacknowledged += 1
        self._window_was_full |= self._unacknowledged >= self._window
        self._out.append(Persist(OutboxAppended(key, number, payload)))
        self._out.append(PublishAccepted(key, Label(self.source, number)))
        self._send(number, now)
        self._deadline = min(self._deadline, now + self._resend_ns)

    def _send(self, number: int, now: int) -> None:
        held = self._held[number]
        held.sent_at = now
        data = Data(self._stripe, self._epoch, self.source, number, self._freed, held.payload, held.digest)
        self._out.append(Multicast(data))

    def _disclose(self, discloser: Discloser, now: int) -> None:
        """Show the keys of what is certified; ask for the ring as long as it is not known who certifies."""
        shown = discloser.due(now)
        if shown:
            self._out.append(Multicast(Disclose(self._stripe, self._epoch, self.source, shown)))
        if self._ring == self._epoch != NO_EPOCH:
            self._ask_at = NEVER
        elif now >= self._ask_at or self._ask_at == NEVER:
            # A site in a later epoch than the packet's answers with its ring.
            self._ask_at = now + self._timing.retry_ns
            self._out.append(Multicast(Disclose(self._stripe, self._ring, self.source, ())))

    def _resend_due(self, now: int) -> None:
        """Send again what no token has acknowledged, every τ_s."""
        self._deadline = NEVER
        for number, held in self._unacknowledged_messages():
            # A clock that was set back must not make a message wait for the difference.
            held.sent_at = min(held.sent_at, now)
            if now >= held.sent_at + self._resend_ns:
                self._send(number, now)
            self._deadline = min(self._deadline, held.sent_at + self._resend_ns)

    # What the network says ----------------------------------------------------------------------

    def _on_packet(self, packet: Packet, now: int) -> None:
        match packet:
            case Token():
                self._on_token(packet, now)
            case TokenPart():
                token = self._parts.add(packet)
                if token is not None:
                    self._on_token(token, now)
            case Repair(item=Token() as token):
                self._on_token(token, now)
            case NewRing():
                self._on_new_ring(packet, now)
            case Standing() if packet.source == self.source and packet.epoch == self._epoch:
                self._acknowledge(packet.next_number, packet.token_number)
            case Receipt() if self._discloser is not None and packet.epoch == self._epoch:
                if self._discloser.is_news(packet) and (not self.notary.receipts or self.notary.is_genuine(packet)):
                    self._discloser.on_receipt(packet)
            case (
                Data() | Disclose() | Receipt() | Nack() | Repair() | Pending() | Standing() | Suspect() | Invite()
                | Refuse() | Join() | SourceChain() | SecondaryToken() | ReleasedPacket() | Proof() | RangeRequest()
                | RangeReply()
                | LineAsk() | LineAck() | Lines()
            ):  # fmt: skip
                pass
            case _:
                assert_never(packet)

    def _on_token(self, token: Token, now: int) -> None:
        """Note what is acknowledged, resend what should have been, free what is stable."""
        if token.epoch < self._epoch and self._discloser is None:
            return
        if not self.notary.is_genuine(token):
            return
        if self._discloser is not None and token.epoch <= self._epoch:
            self._discloser.on_token(token, is_old=token.epoch < self._epoch)
        if token.epoch < self._epoch:
            return
        if token.epoch > self._epoch:
            # The ring was reformed, and what became of our messages is unknown until the ring, or a token, says.
            self._heed_reformation()
            self._epoch = token.epoch
            self._newest = 0
            if self._ring != token.epoch:
                self._roll_back({})
            if self._discloser is not None:
                self._discloser.entered(None)
                self._discloser.on_token(token)
        for run in token.runs:
            if run.source == self.source:
                self._acknowledge(run.first, token.token_number - 1)
                self._compare(run, token)
                self._acknowledge(run.first + run.count, token.token_number)
        self._settle_doubt(token)
        self._parts.forget(token.token_number)
        if token.token_number > self._newest:
            passed = token.token_number - self._newest if self._newest else 1
            self._newest = token.token_number
            stuck = self._resend_omitted(token, now)
            self._size_window(token, passed, now, stuck=stuck)
            self._vouch()
        self._extend_chain()
        self.free(token)

    # What is this source's own --------------------------------------------------------------------

    def _first_word(self) -> SourceChain | None:
        """What a source says when it starts: where its chain stands, as its last statement may have been lost."""
        if not self.notary.signs or self._chain == NO_DIGEST:
            return None
        return SourceChain(
            self._stripe, self._epoch, self.source, self._chained, self._chain, self._chained, self._chain
        )

    def _compare(self, run: Run, token: Token) -> None:
        """What a token names of this source is what this source sent; what was freed was compared before."""
        following = run.first + run.count
        if not self.notary.signs or self._doubt is not None or self._forgot:
            return
        if run.first < self._freed or following > self._next_number:
            return
        own = [self._held[number].digest for number in range(run.first, following)]
        if digest_of(*own) != run.digest:
            digest = token_digest(token)
            self._doubt = _Doubt(run.first, following - 1, token.epoch, token.token_number, digest)

    def _settle_doubt(self, token: Token) -> None:
        """One owner's token is no sequence: it counts once every member holds it, and not if the next names another."""
        doubt = self._doubt
        self._following = number, before = max(self._following, (token.token_number, token.prev_digest))
        if doubt is None or self._forgot:
            return
        if number == doubt.token_number + 1 and before != doubt.digest:
            self._doubt = None
            self.notary.refuse(SignedKind.TOKEN)
        elif token.stable >= doubt.token_number:
            self._end_incarnation(doubt)

    def _end_incarnation(self, doubt: _Doubt) -> None:
        self._forgot = True
        self._out.append(NameForged(self.source, doubt.first, doubt.last, doubt.token_number))

    def _extend_chain(self) -> None:
        """Over what was acknowledged; an acknowledgement that is taken back changes no content, and no link."""
        if not self.notary.signs or self._forgot:
            return
        chain = self._chain
        for number in range(self._chained + 1, self._acknowledged):
            held = self._held[number]
            chain = held.chain = chained(chain, held.digest)
        self._chained, self._chain = max(self._chained, self._acknowledged - 1), chain

    def _vouch(self) -> None:
        """Once in a token period sign for what is new; say the newest statement again, ever more seldom."""
        self._extend_chain()
        since, before = self._signed
        if self._chained > since:
            self._word = SourceChain(self._stripe, self._epoch, self.source, since, before, self._chained, self._chain)
            self._signed = self._chained, self._chain
            self._pause = self._due = 0
        if self._word is None or self._forgot:
            return
        if self._due:
            self._due -= 1
            return
        self._pause = min(2 * self._pause + 1, REPEATS_MAX - 1)
        self._due = self._pause
        # Signed anew each time: a roster that came meanwhile has another serial.
        self._out.append(Multicast(self.notary.sign(self._word._replace(epoch=self._epoch))))

    # The window, and what is let go -----------------------------------------------------------------

    def _size_window(self, token: Token, passed: int, now: int, *, stuck: bool) -> None:
        """What a token acknowledges is what the ring carries; a token that others would miss by now is a late one."""
        late = now > token.instant + self._timing.detect_ns + 2 * self._timing.clock_error_ns
        acknowledged = self._acknowledged - self._counted
        self._counted = self._acknowledged
        self._own_window.token(acknowledged, passed, limited=self._window_was_full, overloaded=late or stuck)
        self._window = self._granted(token)
        self._window_was_full = self._unacknowledged >= self._window

    def _granted(self, token: Token) -> int:
        for grant in token.grants:
            if grant.source == self.source:
                return min(grant.window, self._own_window.size)
        return self._own_window.size

    def _acknowledge(self, below: int, token_number: int) -> None:
        """Every number below is in the sequence, at or before this token."""
        if below > self._next_number and not self._forgot:
            self._forgot = True
            self._out.append(NumbersForgotten(self.source, self._next_number, below))
        if self._doubt is not None:
            below = min(below, self._doubt.first)
        first, self._acknowledged = self._acknowledged, max(self._acknowledged, min(below, self._next_number))
        for number in range(first, self._acknowledged):
            held = self._held.get(number)
            if held is not None:
                held.token_number = max(token_number, 1)
                self._unacknowledged -= 1

    def _unacknowledged_messages(self) -> list[tuple[int, _Held]]:
        """What no token has named yet, in order."""
        numbers = range(self._acknowledged, self._next_number)
        return [(number, self._held[number]) for number in numbers if number in self._held]

    def _resend_omitted(self, token: Token, now: int) -> bool:
        """A token scheduled δ_N after a message was sent should have named it; whether it omits one a second time."""
        limit = token.instant - self._timing.detect_ns
        before, self._omitted = self._omitted, 0
        for number, held in self._unacknowledged_messages():
            if held.sent_at <= limit:
                self._omitted = self._omitted or number
                self._send(number, now)
        return bool(before) and self._omitted == before

    def free(self, token: Token) -> None:
        """Forget what every member holds."""
        self._forget_until(token.stable)

    def _forget_until(self, token_number: int) -> None:
        base, chain = self._freed, NO_DIGEST
        # After a restart the outbox says on which chain a message hangs whose key is not disclosed yet.
        last = self._next_number if self._discloser is None else min(self._next_number, self._discloser.settled)
        while base < last:
            held = self._held.get(base)
            if held is None or not held.token_number or held.token_number > token_number:
                break
            chain = held.chain
            del self._held[base]
            base += 1
        if base > self._freed:
            self._freed = base
            self._out.append(Persist(OutboxFreed(base, chain)))

    def _on_new_ring(self, ring: NewRing, now: int) -> None:
        """Roll back to the cut and send again everything that is not in it (protocol §5, step 5)."""
        if ring.ballot < self._epoch or ring.ballot <= self._ring or not self.notary.is_genuine(ring):
            return
        if self.notary.verifies and ring.sender != ring.ballot.server:
            self.notary.refuse(SignedKind.NEWRING)
            return
        doubt = self._doubt
        if doubt is not None and _holds(ring, doubt):
            self._end_incarnation(doubt)
        if self._discloser is not None and ring.ballot == self._epoch:
            self._learn_ring(self._discloser, ring)
            return
        self._heed_reformation()
        self._epoch = self._ring = ring.ballot
        self._newest = 0
        self._roll_back({entry.source: (entry.number, ring.cut_token) for entry in ring.next_numbers})
        if self._discloser is not None:
            self._discloser.entered(ring)
        for number, _ in self._unacknowledged_messages():
            self._send(number, now)
        if self._unacknowledged:
            self._deadline = min(self._deadline, now + self._resend_ns)

    def _learn_ring(self, discloser: Discloser, ring: NewRing) -> None:
        """The ring of an epoch whose tokens have been heard already: what these acknowledged stays."""
        self._ring = ring.ballot
        discloser.learn(ring)
        for source, number in ring.next_numbers:
            if source == self.source:
                self._acknowledge(number, ring.cut_token)

    def _roll_back(self, next_numbers: Mapping[NodeId, tuple[int, int]]) -> None:
        self._doubt, self._following = None, (0, NO_DIGEST)
        for held in self._held.values():
            held.token_number = 0
        self._unacknowledged = len(self._held)
        self._acknowledged = self._freed
        if self.source in next_numbers:
            self._acknowledge(*next_numbers[self.source])
        self._counted, self._omitted = self._acknowledged, 0
        if self._unacknowledged:
            self._deadline = 0

    def _heed_reformation(self) -> None:
        """A ring that failed while the window was full may have failed under it; the first ring follows none."""
        if self._window_was_full and self._newest:
            self._own_window.reformed()
            self._window = self._own_window.size


def _holds(ring: NewRing, doubt: _Doubt) -> bool:
    """Whether a new ring goes on from a log with that token."""
    if ring.cut_epoch != doubt.epoch or ring.cut_token < doubt.token_number:
        return False
    return ring.cut_token > doubt.token_number or ring.cut_digest == doubt.digest
