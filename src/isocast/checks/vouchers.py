"""S17: what a journal says is what a majority of U vouched for, shown by what the journal keeps and a roster alone.

The chain of a proof, from the content to the signatures:

    payload, seal key, label → sealed payload → its digest → the run's digest → the token's body → its digest
    the owner's signature on the body; the signatures on later tokens, which name the digest of the one before; receipts

A token counts as *proven* when more than half of U signed, in one epoch, a token or receipt whose chain contains it,
and when the journal's messages are exactly those of its runs, in its order. U is that of the roster, changed by the
tokens' own control entries. A signature that does not verify, a content that is not what was signed and two tokens
under one number are breaches. A token whose vouchers are not there is *unproven*, with a reason; those at the end of a
journal *wait*, as their vouchers come with its next blocks.

What sources signed for is judged on the way (S21, `source_words`).

What a journal needs no proof of is what a site says of itself: when it released, and how well it knew the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import unpack_from
from typing import NamedTuple, Protocol, TypeAlias

from isocast.checks.journals import Breach, FaultKind
from isocast.checks.shuffles import nonces_key, shuffled_labels
from isocast.checks.source_words import SourcesVouched, SourceWords
from isocast.checks.universe import universe_after
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import Epoch, NodeId, describe
from isocast.wire.journal import BlockHeader
from isocast.wire.journal_blocks import BlockView
from isocast.wire.journal_proofs import NO_SEAL, BlockProof, MessageSeal, Statement
from isocast.wire.packets import DIGEST_BYTES, NO_DIGEST, NO_NONCE, Token, digest_of, payload_digest
from isocast.wire.signing import SignedKind, Verifier
from isocast.wire.statements import read_chain_statement
from isocast.wire.token_body import decode_token_body, token_digest

__all__ = ["Reseal", "Unproven", "Vouched", "VoucherWalk", "Witness"]

_TOKENS_KEPT = 1 << 14
"""Bounds: tokens whose vouchers are still looked for. A majority speaks within the next turn of the ring."""
_WAITING_MAX = 1 << 10
_UNPROVEN_KEPT = 1_000
_RING_MAX = 1 << 10
"""Bounds: how far back an owner's token before is looked for."""
_HELD_BYTES = 8
_BARE = "the journal keeps no proof of it"

Label: TypeAlias = tuple[NodeId, int]
Reseal: TypeAlias = Callable[[MessageSeal, int, Label, bytes], bytes]
"""(seal, stripe, label, payload) → the payload as it travelled."""


class Witness(Verifier, Protocol):
    """A verifier that knows which rosters it has."""

    def knows(self, node: NodeId, signature: bytes) -> bool:
        """Whether the roster under which a node signed is here, and its key was not revoked."""

    def lists(self, node: NodeId, stripe: int) -> bool:
        """Whether a roster gives a node an identity in a stripe."""


class Unproven(NamedTuple):
    """A token that nothing is wrong with, and that is not proven."""

    token_number: int
    epoch: Epoch
    sequence: int
    last_sequence: int
    reason: str


@dataclass(slots=True)
class Vouched:
    """What a journal could prove."""

    universe: tuple[NodeId, ...]
    """U at the end."""
    tokens: int = 0
    """With messages in the journal."""
    proven_tokens: int = 0
    proven_messages: int = 0
    proven_until: int | None = None
    """Every sequence before it, from the journal's first on, is proven."""
    waiting_tokens: int = 0
    """At the end of the journal: their vouchers come with its next blocks."""
    unopened_messages: int = 0
    """Whose seal did not fit: the journal has no content of them to prove."""
    signed: Counter[NodeId] = field(default_factory=Counter)
    """Proven tokens that each site vouched for."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Unproven tokens, by the reason."""
    unproven: list[Unproven] = field(default_factory=list)
    """The first thousand."""
    sources: SourcesVouched = field(default_factory=SourcesVouched)
    """What sources signed for (S21)."""
    mixed_tokens: int = 0
    """With messages of several sources, whose order was computed again from the token's owner's words."""
    shuffled_tokens: int = 0
    """Of these: in the order of the key that two owners' nonces make. 0 in a market that orders by arrival."""
    keyed_tokens: int = 0
    """Whose shuffle key in the journal is the one that the nonces make (F5)."""
    committed_tokens: int = 0
    """Whose nonce is the one that the owner committed to in its token before (F5)."""

    @property
    def is_whole(self) -> bool:
        """Whether every token but those at the end is proven, and every message signed for by its source."""
        return not self.reasons and not self.sources.unsigned


@dataclass(slots=True)
class _Gathered:
    """A token's messages, as its blocks bring them."""

    header: BlockHeader
    labels: list[Label] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    is_bare: bool = False
    """Whether a block of it keeps no proof."""
    is_wrong: bool = False

    @property
    def last_sequence(self) -> int:
        return self.header.first_sequence + len(self.labels) - 1


@dataclass(slots=True)
class _Known:
    """A token whose signature is right, or that has none."""

    token: Token
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]
    votes: dict[Epoch, set[NodeId]] = field(default_factory=dict)

    def voters(self) -> tuple[NodeId, ...]:
        """The sites of one epoch that are a majority of U, before or after this token; none if there is none."""
        for votes in self.votes.values():
            for universe in (self.before, self.after):
                found = [site for site in universe if site in votes]
                if 2 * len(found) > len(universe):
                    return tuple(found)
        return ()


class VoucherWalk:
    """Takes a journal's blocks in order."""

    def __init__(self, stripe: int, universe: Sequence[NodeId], witness: Witness, reseal: Reseal) -> None:
        """`universe`: the sites whose majority decides when the journal begins; `witness` knows their keys."""
        self.report = Vouched(tuple(universe))
        self._stripe = stripe
        self._witness = witness
        self._reseal = reseal
        self._open: _Gathered | None = None
        self._known: dict[bytes, _Known] = {}
        """By digest, oldest first."""
        self._numbered: dict[tuple[Epoch, int], bytes] = {}
        self._waiting: list[tuple[_Gathered, bytes]] = []
        """Tokens whose content is right, and what their vouchers must name."""
        self._rules = {False, True}
        """Whether the market shuffles; both are possible until a token decides it."""
        self._words = SourceWords(self.report.sources)
        self._must_sign: dict[NodeId, bool] = {}
        self._first_miss: int | None = None
        self._next_sequence: int | None = None

    # Blocks -------------------------------------------------------------------------------------

    def take(self, block: BlockView) -> list[Breach]:
        """The next sound block; what it proves to be wrong."""
        header = block.header
        self._next_sequence = header.next_sequence
        proof = block.proof()
        found = list(self._statements(proof, header)) if proof is not None else []
        messages = block.messages()
        self._words.begin(header.token_number)
        for place, (source, number, digest, _) in enumerate(messages):
            if self._is_bound(source):
                self._words.take(source, number, digest, header.first_sequence + place, header.token_number)
        found += self._words.settle()
        gathered = self._gathering(header)
        if gathered is None:
            return found
        gathered.is_bare |= proof is None
        for place, (source, number, digest, payload) in enumerate(messages):
            gathered.labels.append((source, number))
            gathered.digests.append(digest)
            if proof is not None and self._is_other(proof, place, (source, number), digest, payload):
                gathered.is_wrong = True
                sequence = header.first_sequence + place
                text = (
                    f"sequence {sequence}, message {number} of {describe(source)}: its content, sealed with the key"
                    " that the journal keeps, is not what was ordered"
                )
                found.append(Breach(FaultKind.PROOF, "S17", text, sequence, sequence))
        if header.ends_token:
            self._open = None
            found += self._judge(gathered)
        self._settle()
        return found

    def end(self) -> None:
        """The journal ends here."""
        waiting = [gathered for gathered, _ in self._waiting]
        if self._open is not None:
            waiting.append(self._open)
        self.report.tokens += len(waiting)
        self.report.waiting_tokens += len(waiting)
        ends = [gathered.header.first_sequence for gathered in waiting[:1]]
        if True not in self._rules:
            self.report.shuffled_tokens = 0  # By chance some stood in the order of their keys.
        self._words.end()
        open_from = self.report.sources.open_from
        ends += [end for end in (self._first_miss, self._next_sequence, open_from) if end is not None]
        self.report.proven_until = min(ends, default=None)
        self._waiting.clear()
        self._open = None

    def _is_bound(self, source: NodeId) -> bool:
        """Whether a source has an identity, and so must have signed for what is in its name."""
        known = self._must_sign.get(source)
        if known is None:
            known = self._must_sign[source] = self._witness.lists(source, self._stripe)
        return known

    def _gathering(self, header: BlockHeader) -> _Gathered | None:
        """The token that a block belongs to; None where its first messages are not in the journal."""
        opened = self._open
        if header.place:
            follows = (
                opened is not None
                and (opened.header.epoch, opened.header.token_number) == (header.epoch, header.token_number)
                and opened.header.first_sequence + len(opened.labels) == header.first_sequence
            )
            if not follows:
                self._lose_open()
                if header.ends_token:
                    self._miss(_Gathered(header), "its first messages are not here", header.next_sequence - 1)
                return None
            return opened
        self._lose_open()
        self._open = _Gathered(header)
        return self._open

    def _lose_open(self) -> None:
        if self._open is not None:
            self._miss(self._open, _BARE if self._open.is_bare else "its last messages are not here")
            self._open = None

    def _is_other(self, proof: BlockProof, place: int, label: Label, digest: bytes, payload: bytes) -> bool:
        if not proof.seals:
            return payload_digest(payload) != digest
        seal = proof.seals[place]
        if seal == NO_SEAL:
            self.report.unopened_messages += 1
            return bool(payload)
        return payload_digest(self._reseal(seal, self._stripe, label, payload)) != digest

    # Statements ---------------------------------------------------------------------------------

    def _statements(self, proof: BlockProof, header: BlockHeader) -> Iterator[Breach]:
        for statement in proof.statements:
            fault = self._hear(statement)
            if fault:
                law = "S21" if statement.kind == SignedKind.SOURCE_CHAIN else "S17"
                yield Breach(FaultKind.PROOF, law, fault, header.first_sequence, header.next_sequence - 1, "proof")

    def _hear(self, statement: Statement) -> str:
        """Take a signed word; what is wrong with it."""
        kind, epoch, sender, signature, body = statement
        if kind == SignedKind.SOURCE_CHAIN:
            return self._hear_source(statement)
        if kind not in (SignedKind.TOKEN, SignedKind.RECEIPT):
            return ""
        token: Token | None = None
        if kind == SignedKind.TOKEN:
            try:
                token = decode_token_body(self._stripe, body)
            except RemoteProtocolError as reason:
                return f"a token in the name of {describe(sender)} is none: {reason}"
            if (token.epoch, token.sender) != (epoch, sender):
                return f"token {token.token_number} is not of {describe(sender)} in epoch {epoch}"
            what = f"token {token.token_number} of epoch {epoch}"
        elif len(body) != _HELD_BYTES + DIGEST_BYTES:
            return f"a receipt of {describe(sender)} has {len(body)} bytes"
        else:
            what = f"the receipt for token {unpack_from('<Q', body)[0]} of epoch {epoch}"
        counts = bool(signature) and self._witness.knows(sender, signature)
        if counts and not self._witness.is_from(sender, SignedKind(kind), self._stripe, epoch, body, signature):
            return f"{what}: the signature is not that of {describe(sender)} under the roster that it names"
        if token is not None:
            return self._learn(token, is_signed=counts)
        if counts:
            self._vote(body[_HELD_BYTES:], sender, epoch)
        return ""

    def _hear_source(self, statement: Statement) -> str:
        """What a source signed for; a word that does not count is none."""
        kind, epoch, sender, signature, body = statement
        try:
            said = read_chain_statement(self._stripe, sender, body)
        except RemoteProtocolError as reason:
            return f"what {describe(sender)} signed for is no statement of a source: {reason}"
        if not signature or not self._is_bound(sender) or not self._witness.knows(sender, signature):
            return ""
        if not self._witness.is_from(sender, SignedKind(kind), self._stripe, epoch, body, signature):
            return f"the statement for messages up to {said.number} is not signed by {describe(sender)}"
        return self._words.hear(said)

    def _learn(self, token: Token, *, is_signed: bool) -> str:
        digest, key = token_digest(token), (token.epoch, token.token_number)
        other = self._numbered.get(key)
        if other is not None and other != digest:
            return f"{describe(token.sender)} signed two contents of token {token.token_number} in epoch {token.epoch}"
        if other is None:
            previous = self._known.get(token.prev_digest)
            before = self.report.universe if previous is None else previous.after
            after = universe_after(before, token.control)
            self._known[digest] = _Known(token, before, after)
            self._numbered[key] = digest
            self.report.universe = after
            self._trim()
        if is_signed:
            self._vote(digest, token.sender, token.epoch)
        return ""

    def _vote(self, digest: bytes, site: NodeId, epoch: Epoch) -> None:
        """Who signs a token vouches for every one before it."""
        known = self._known.get(digest)
        while known is not None:
            votes = known.votes.setdefault(epoch, set())
            if site in votes:
                return
            votes.add(site)
            known = self._known.get(known.token.prev_digest)

    def _trim(self) -> None:
        if len(self._known) > _TOKENS_KEPT:
            digest = next(iter(self._known))
            token = self._known.pop(digest).token
            self._numbered.pop((token.epoch, token.token_number), None)

    # Tokens -------------------------------------------------------------------------------------

    def _judge(self, gathered: _Gathered) -> Iterator[Breach]:
        """A token whose messages are all here: whether they are what it says."""
        header = gathered.header
        digest = self._numbered.get((header.epoch, header.token_number))
        if gathered.is_wrong:
            self._miss(gathered, "a content is not what was ordered")
        elif gathered.is_bare:
            self._miss(gathered, _BARE)
        elif header.uncertified:
            self._miss(gathered, "it was released without a majority (policy `availability`)")
        elif digest is None:
            self._miss(gathered, "the journal does not hold the token itself")
        elif not self._known[digest].votes:
            self._miss(gathered, "nobody signed it by a key that counts under the given rosters")
        else:
            fault = self._content_fault(gathered, self._known[digest].token)
            if fault is None:
                self._waiting.append((gathered, digest))
            elif isinstance(fault, Breach):
                self._miss(gathered, "the journal contradicts it")
                yield fault
            else:
                self._miss(gathered, fault)

    def _content_fault(self, gathered: _Gathered, token: Token) -> Breach | str | None:
        """What contradicts a token, or why that cannot be known."""
        header, name = gathered.header, f"token {token.token_number}"
        first, last = header.first_sequence, gathered.last_sequence
        said = (header.first_sequence, header.token_count, header.instant)
        if said != (token.first_sequence, token.count, token.instant):
            text = f"{name}: first sequence, count and instant are {said} here, and others in what its owner signed"
            return Breach(FaultKind.PROOF, "S17", text, first, last, "token")
        by_source: dict[NodeId, list[tuple[int, bytes]]] = {}
        for (source, number), digest in zip(gathered.labels, gathered.digests, strict=True):
            by_source.setdefault(source, []).append((number, digest))
        for run in token.runs:
            here = by_source.pop(run.source, [])
            numbers = [number for number, _ in here]
            if numbers != list(range(run.first, run.first + run.count)) or run.digest != digest_of(
                *[digest for _, digest in here]
            ):
                text = f"{name}: the messages of {describe(run.source)} are not those that it acknowledges"
                at = next((i for i, (source, _) in enumerate(gathered.labels) if source == run.source), 0)
                return Breach(FaultKind.PROOF, "S17", text, first + at, last)
        return self._nonce_fault(gathered, token) or self._order_fault(gathered, token)

    def _nonce_fault(self, gathered: _Gathered, token: Token) -> Breach | None:
        """F5: the owner reveals what it committed to, and the journal's key is made of the two nonces."""
        header, name = gathered.header, f"token {token.token_number}"
        first, last = header.first_sequence, gathered.last_sequence
        committed = self._commitment(token)
        if committed is not None:
            if committed != blake2b(token.reveal, digest_size=len(token.reveal)).digest():
                text = f"{name}: {describe(token.sender)} reveals another nonce than it committed to"
                return Breach(FaultKind.PROOF, "F5", text, first, last, "reveal")
            self.report.committed_tokens += 1
        key = self._key(token)
        if key is None or (header.fetched and not any(header.shuffle_key)):
            return None  # What was fetched from an archive of an older version has no key.
        if header.shuffle_key != key:
            text = f"{name}: its shuffle key here is not the one that the nonces of its owner and the one before make"
            return Breach(FaultKind.PROOF, "F5", text, first, last, "shuffle_key")
        self.report.keyed_tokens += 1
        return None

    def _commitment(self, token: Token) -> bytes | None:
        """What the owner committed to in its token before; None where the chain to that is not here."""
        known = self._known.get(token.prev_digest)
        for _ in range(_RING_MAX):
            if known is None or known.token.epoch != token.epoch:
                return None
            if known.token.sender == token.sender:
                return known.token.commit
            known = self._known.get(known.token.prev_digest)
        return None

    def _key(self, token: Token) -> bytes | None:
        """The shuffle key that the nonces make; None where the token before is not here."""
        previous = self._known.get(token.prev_digest)
        if previous is None and token.prev_digest != NO_DIGEST:
            return None
        return nonces_key(token.reveal, NO_NONCE if previous is None else previous.token.reveal)

    def _order_fault(self, gathered: _Gathered, token: Token) -> Breach | str | None:
        """The order of arrival, or that of the nonces: the same for all tokens of a journal."""
        if len(token.runs) == 1:
            return None
        fits = {False} if _in_order_of_arrival(token) == gathered.labels else set()
        if not token.interleave and True in self._rules:
            key = self._key(token)
            if key is None:
                return "the token before it, whose nonce may order it, is not here"
            if shuffled_labels(token.runs, key) == gathered.labels:
                fits |= {True}
        if not self._rules & fits:
            text = f"token {token.token_number}: its messages are not in the order that it gives them"
            return Breach(FaultKind.PROOF, "S17", text, gathered.header.first_sequence, gathered.last_sequence)
        self._rules &= fits
        self.report.mixed_tokens += 1
        self.report.shuffled_tokens += True in fits
        return None

    def _settle(self) -> None:
        """Count what a majority vouches for by now.

        Vouchers come in order, so what lies before a proven token and is not proven with it will never be.
        """
        found = [() if (known := self._known.get(digest)) is None else known.voters() for _, digest in self._waiting]
        newest = max([place for place, voters in enumerate(found) if voters], default=-1)
        newest = max(newest, len(found) - _WAITING_MAX - 1)
        for (gathered, digest), voters in zip(self._waiting[: newest + 1], found, strict=False):
            if voters:
                self._prove(gathered, voters)
            else:
                self._miss(gathered, self._shortage(self._known.get(digest)))
        del self._waiting[: newest + 1]

    def _shortage(self, known: _Known | None) -> str:
        votes = max((len(votes) for votes in known.votes.values()), default=0) if known is not None else 0
        return f"only {votes} of {len(self.report.universe)} sites signed what holds it"

    def _prove(self, gathered: _Gathered, voters: tuple[NodeId, ...]) -> None:
        report = self.report
        report.tokens += 1
        report.proven_tokens += 1
        report.proven_messages += len(gathered.labels)
        report.signed.update(voters)

    def _miss(self, gathered: _Gathered, reason: str, last: int | None = None) -> None:
        header, report = gathered.header, self.report
        if self._first_miss is None or header.first_sequence < self._first_miss:
            self._first_miss = header.first_sequence
        report.tokens += 1
        report.reasons[reason] += 1
        if len(report.unproven) < _UNPROVEN_KEPT:
            end = gathered.last_sequence if last is None else last
            found = Unproven(header.token_number, header.epoch, header.first_sequence, end, reason)
            report.unproven.append(found)


def _in_order_of_arrival(token: Token) -> list[Label]:
    runs = token.labels
    if not token.interleave:
        return [label for labels in runs for label in labels]
    following = [iter(labels) for labels in runs]
    return [next(following[place]) for place, count in token.interleave for _ in range(count)]
