"""Keys that their source discloses after the order of its messages is certified (§6): `reveal = "chain"`.

A message's key hangs on a link of its source's chain, and each link is the hash of the next: whoever has the link of a
number walks back to those of all numbers before it in the chain, and to none behind it. A chain has `CHAIN_LENGTH`
numbers; the next one begins by itself.

1. The source shows a link (DISCLOSE) only after it has itself seen a majority's receipts for the token that
   acknowledges the message: what is cut off by a reformation was never readable. It believes no single receiver, which
   might want to read early: neither a STANDING, nor a vote that NEWRING repeats, nor a token that is not receipted.
2. The owner of a token puts the links that it has heard, and that fit, into its token. So they are ordered. Every
   receiver has the key of a source's tags and could forge a DISCLOSE: a link that does not fit takes nobody's place.
3. A message of token t counts if and only if one of the tokens t+1 to t+V carries a link that opens the message which
   it names, and leads to this one. That is a function of the log: the message is opened at all sites, or void at all
   of them. Hence nothing of t is released before t+V is certified.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple, Protocol, TypeAlias

from isocast.ring.ledger import Ledger, LogEntry, universe_after
from isocast.ring.release import majority
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER
from isocast.terms.timing import Timing
from isocast.wire.limits import LINK_BYTES, MAX_DISCLOSURES, MAX_LINKS
from isocast.wire.packets import Data, Disclose, Disclosure, NewRing, Receipt, Token
from isocast.wire.token_body import token_digest

__all__ = [
    "CHAIN_LENGTH",
    "NO_LINK",
    "Discloser",
    "DisclosureBook",
    "Fits",
    "KeyChain",
    "Place",
    "chain_of",
    "link_before",
    "links",
]

CHAIN_LENGTH = 1_024
"""Numbers of one chain. Bounds: what a link that opens nothing makes a receiver hash, half a millisecond."""
NO_LINK = b""
"""Of a message that is void."""
_LINKS_HEARD = 64
"""Links of one source that wait for a token; the oldest gives way."""
_LINKS_TRIED = 4
"""Links of one number that wait for its message: forged links delay nobody but their sender."""
_SOURCES_HEARD = 4_096
_CHAINS_SHOWN = 8
"""Chains that a source goes back at most: more numbers than two tokens acknowledge of one source."""
_TOKENS_SEEN = 64
"""Tokens of one signer that a source remembers, and receipts of one site: whoever makes up more displaces its own."""
_CERTAIN_KEPT = 1_024
"""Certified tokens that a source remembers; a repeated one is not taken twice."""

Fits: TypeAlias = Callable[[tuple[NodeId, int], bytes, bytes], bool]
"""(label, link, sealed payload) → whether the link opens it: the payload commits to its key."""


class KeyChain(Protocol):
    """A source's own chains, as far as its machine needs them."""

    def links(self, first: int, last: int) -> Sequence[tuple[int, bytes]]:
        """The fewest links that open every message from `first` to `last`: one for each chain, numbers rising."""


def link_before(link: bytes) -> bytes:
    """The link of the number before, in the same chain."""
    return blake2b(link, digest_size=LINK_BYTES, person=b"isocast chain").digest()


def chain_of(number: int) -> int:
    """Which chain a number of a source belongs to."""
    return (number - 1) // CHAIN_LENGTH


def links(disclosure: Disclosure, first: int) -> dict[int, bytes]:
    """By number, the links from a disclosed one down to `first`, or to the beginning of its chain."""
    number, link = disclosure.number, disclosure.key
    lowest = max(first, chain_of(number) * CHAIN_LENGTH + 1)
    found: dict[int, bytes] = {}
    while number >= lowest:
        found[number] = link
        number -= 1
        link = link_before(link)
    return found


class DisclosureBook:
    """A receiver's: links that were heard and wait for this site's token, and what the log's tokens disclose."""

    def __init__(self, ledger: Ledger, tokens: int, fits: Fits) -> None:
        """`tokens` is V."""
        self._ledger = ledger
        self._tokens = tokens
        self._fits = fits
        self._heard: dict[NodeId, dict[int, bytes]] = {}
        """Links that fit a message of the log."""
        self._early: dict[NodeId, dict[int, dict[bytes, None]]] = {}
        """Links of messages that are not in this site's log yet: genuine and forged ones cannot be told apart."""
        self._indices: dict[int, tuple[LogEntry, dict[tuple[NodeId, int], Data]]] = {}
        self.refused = 0
        """Links that open nothing: somebody forged them."""

    # What is heard ------------------------------------------------------------------------------

    def hear(self, packet: Disclose) -> None:
        """Keep links that fit until a token of this site's may carry them."""
        source, window = packet.sender, self._window(self._ledger.held + 1)
        for number, link in packet.links:
            if self._heard.get(source, {}).get(number) == link:
                continue
            message = self._message(source, number, window)
            if message is not None:
                self._keep(message, link)
            elif number >= self._ledger.next_number.get(source, 1):
                self._keep_early(source, number, link)

    def _keep(self, message: Data, link: bytes) -> None:
        if not self.fits(message.label, link, message.payload):
            self.refused += 1
            return
        heard = self._heard.setdefault(message.sender, {})
        heard[message.number] = link
        if len(heard) > _LINKS_HEARD:
            del heard[next(iter(heard))]
        if len(self._heard) > _SOURCES_HEARD:
            del self._heard[next(iter(self._heard))]

    def _keep_early(self, source: NodeId, number: int, link: bytes) -> None:
        early = self._early.setdefault(source, {})
        tried = early.setdefault(number, {})
        if len(tried) < _LINKS_TRIED:
            tried[link] = None
        if len(early) > _LINKS_HEARD:
            del early[next(iter(early))]
        if len(self._early) > _SOURCES_HEARD:
            del self._early[next(iter(self._early))]

    def _try_early(self, window: Sequence[LogEntry]) -> None:
        """Links that came before their messages: those that are here now are looked at."""
        for source, early in list(self._early.items()):
            for number in [number for number in early if number < self._ledger.next_number.get(source, 1)]:
                tried, message = early.pop(number), self._message(source, number, window)
                if message is not None:
                    for link in tried:
                        self._keep(message, link)
            if not early:
                del self._early[source]

    def due(self, slot: int) -> tuple[Disclosure, ...]:
        """What the owner of token `slot` discloses: the fewest links that open what it can still make count."""
        window = self._window(slot)
        if self._early:
            self._try_early(window)
        if not self._heard:
            return ()
        carried = {one: None for entry in window for one in entry.token.disclosures}
        found: list[Disclosure] = []
        for source, heard in list(self._heard.items()):
            for number in [number for number in heard if self._message(source, number, window) is None]:
                del heard[number]
            if heard:
                found += self._fewest(source, heard, carried)
            else:
                del self._heard[source]
        return tuple(sorted(found)[:MAX_DISCLOSURES])

    @staticmethod
    def _fewest(source: NodeId, heard: Mapping[int, bytes], carried: Mapping[Disclosure, None]) -> list[Disclosure]:
        """Of the links that were heard of a source, those that no other one and no token leads to."""
        opened: dict[int, bytes] = {}
        found: list[Disclosure] = []
        for number in sorted(heard, reverse=True):
            one = Disclosure(source, number, heard[number])
            if opened.get(number) != one.key:
                opened |= links(one, min(heard))
                if one not in carried:
                    found.append(one)
        return found[:MAX_LINKS]

    # What the log says --------------------------------------------------------------------------

    def _window(self, slot: int) -> list[LogEntry]:
        """The tokens whose messages token `slot` may open."""
        return self._between(slot - self._tokens, slot - 1)

    def _between(self, first: int, last: int) -> list[LogEntry]:
        entries = self._ledger.entries
        return [entries[number] for number in range(first, last + 1) if number in entries]

    def _message(self, source: NodeId, number: int, window: Sequence[LogEntry]) -> Data | None:
        """A message of some of the log's tokens."""
        for entry in window:
            message = self._index(entry).get((source, number))
            if message is not None:
                return message
        return None

    def _index(self, entry: LogEntry) -> dict[tuple[NodeId, int], Data]:
        """A token's messages by label, made once for the few tokens that matter at a time."""
        number = entry.token.token_number
        known = self._indices.get(number)
        if known is not None and known[0] is entry:
            return known[1]
        index = {message.label: message for message in entry.messages}
        self._indices[number] = entry, index
        if len(self._indices) > 2 * self._tokens + 1:
            del self._indices[min(self._indices)]
        return index

    def fits(self, label: tuple[NodeId, int], link: bytes, sealed: bytes) -> bool:
        """Whether a link opens a message."""
        return self._fits(label, link, sealed)

    def disclosed(self, token_number: int) -> list[Disclosure]:
        """What the V tokens behind a token disclose: links that open the messages which they name.

        Others are not walked: an owner that lies would make every site hash for nothing.
        """
        found: list[Disclosure] = []
        for entry in self._between(token_number + 1, token_number + self._tokens):
            if entry.token.disclosures:
                window = self._between(token_number, entry.token.token_number - 1)
                found += [one for one in entry.token.disclosures if self._opens(one, window)]
        return found

    def _opens(self, one: Disclosure, window: Sequence[LogEntry]) -> bool:
        message = self._message(one.source, one.number, window)
        return message is not None and self.fits(message.label, one.key, message.payload)

    def links_of(self, entry: LogEntry, messages: Sequence[Data]) -> tuple[bytes, ...]:
        """The link of each message, and none for those that are void."""
        lowest: dict[NodeId, int] = {}
        for message in messages:
            lowest[message.sender] = min(message.number, lowest.get(message.sender, message.number))
        walks: dict[NodeId, list[dict[int, bytes]]] = {source: [] for source in lowest}
        for one in sorted(self.disclosed(entry.token.token_number), reverse=True):
            known = walks.get(one.source)
            if known is not None and all(walk.get(one.number) != one.key for walk in known):
                known.append(links(one, lowest[one.source]))
        return tuple([self._link_of(message, walks[message.sender]) for message in messages])

    def _link_of(self, message: Data, walks: list[dict[int, bytes]]) -> bytes:
        label = message.label
        for walk in walks:
            link = walk.get(message.number)
            if link is not None and self.fits(label, link, message.payload):
                return link
        return NO_LINK


Place: TypeAlias = tuple[int, bytes]
"""Number and digest of a token: what a receipt is about."""


class _Seen(NamedTuple):
    """What a source keeps of a signed token, until receipts show whether it is in the log."""

    token: Token
    """Without what is not the source's own."""
    first: int
    below: int
    """It acknowledges the source's numbers from `first` up to this one; 0 and 0: none."""


class _Certified(NamedTuple):
    """Numbers below `below` are in the log, for good."""

    below: int
    not_before: int
    last_use: int
    """Behind this token a disclosure makes nothing count any more."""


class Discloser:
    """A source's: which links it may show, and when.

    Not before a majority of U has receipted the token, by its digest or by that of a token which leads back to it; and,
    to leave early readers as little time as can be, not before δ_N+2ε+k_r·τ_r are left until token t+V. It repeats them
    every τ_r until a token carries them.
    """

    def __init__(self, source: NodeId, timing: Timing, chain: KeyChain, settled: int = 1) -> None:
        """Nothing is acknowledged; everything below `settled` was disclosed, or is void."""
        self._source = source
        self._timing = timing
        self._chain = chain
        self._universe: tuple[NodeId, ...] = ()
        self._universe_at = 0
        self._told: dict[NodeId, int] = {}
        self._seen: dict[Place, _Seen] = {}
        self._signed: dict[NodeId, deque[Place]] = {}
        self._vouchers: dict[Place, dict[NodeId, None]] = {}
        self._vouched: dict[NodeId, deque[Place]] = {}
        self._certain: dict[Place, bool] = {}
        """Tokens that a majority holds, and whether what they say was taken note of."""
        self._newest = 0
        self._queue: dict[int, _Certified] = {}
        self.settled = settled
        """Every number below is disclosed in a certified token, or void."""
        self._carried = settled
        """Every number below is disclosed in some token that was seen: it need not be shown again meanwhile."""
        self._next_at = NEVER

    def next_deadline(self) -> int:
        """When the next link may be shown, or one is to be shown again."""
        return self._next_at

    # What the network says ----------------------------------------------------------------------

    def entered(self, ring: NewRing | None) -> None:
        """A new epoch, whose ring may not be known yet: its receipts certify anew, and its tokens carry links anew."""
        self._told.clear()
        self._vouchers.clear()
        self._vouched.clear()
        self._universe = ()
        self._carried = self.settled
        self._next_at = 0
        if ring is not None:
            self._newest = min(self._newest, ring.cut_token)
            self.learn(ring)

    def learn(self, ring: NewRing) -> None:
        """Who certifies in the present epoch, of which tokens and receipts are known already."""
        self._universe, self._universe_at = ring.universe, ring.cut_token
        for place in sorted(self._vouchers):
            self._weigh(place)

    def on_token(self, token: Token, *, is_old: bool = False) -> None:
        """A token that its sender has signed; `is_old`: of an epoch before this one."""
        place = token.token_number, token_digest(token)
        if place in self._seen:
            return
        runs = [run for run in token.runs if run.source == self._source]
        own = tuple([one for one in token.disclosures if one.source == self._source])
        kept = replace(token, runs=(), interleave=(), grants=(), disclosures=own)
        self._seen[place] = _Seen(kept, *((runs[0].first, runs[0].first + runs[0].count) if runs else (0, 0)))
        signed = self._signed.setdefault(token.sender, deque())
        signed.append(place)
        if len(signed) > _TOKENS_SEEN:
            self._seen.pop(signed.popleft(), None)
        if not is_old:
            # What an old one carries counts if the log has it still: receipts will say.
            self._carried = max(self._carried, self._own(own))
        for site in list(self._vouchers.get(place, ())):
            self._vouch(site, (place[0] - 1, token.prev_digest))
        if place in self._certain:
            self._take(place)
        else:
            self._weigh(place)

    def _own(self, disclosures: Sequence[Disclosure]) -> int:
        """Below which number links of its own, and no others in its name, open everything."""
        own = [one for one in disclosures if (one.number, one.key) in self._chain.links(one.number, one.number)]
        return max([one.number + 1 for one in own], default=0)

    def is_news(self, receipt: Receipt) -> bool:
        """Whether a receipt says more than its sender's last one: copies are not verified again."""
        return receipt.held > self._told.get(receipt.sender, -1)

    def on_receipt(self, receipt: Receipt) -> None:
        """A genuine receipt of this epoch: its sender holds the token, and all that this leads back to."""
        self._told[receipt.sender] = receipt.held
        self._vouch(receipt.sender, (receipt.held, receipt.digest))

    def _vouch(self, site: NodeId, place: Place) -> None:
        reached: list[Place] = []
        while site not in self._vouchers.get(place, ()):
            self._vouchers.setdefault(place, {})[site] = None
            self._forget(site, place)
            reached.append(place)
            seen = self._seen.get(place)
            if seen is None:
                break
            place = place[0] - 1, seen.token.prev_digest
        for one in reversed(reached):
            self._weigh(one)

    def _forget(self, site: NodeId, place: Place) -> None:
        """A site that vouches for more than a source looks at displaces its own words."""
        vouched = self._vouched.setdefault(site, deque())
        vouched.append(place)
        if len(vouched) > _TOKENS_SEEN:
            old = vouched.popleft()
            voters = self._vouchers[old]
            del voters[site]
            if not voters:
                del self._vouchers[old]

    # What follows from it -----------------------------------------------------------------------

    def is_certified(self, place: Place) -> bool:
        """Whether a majority of U is known to hold a token."""
        voters = self._vouchers.get(place, {})
        universe = self._universe
        return bool(universe) and len([site for site in universe if site in voters]) >= majority(universe)

    def _weigh(self, place: Place) -> None:
        if place not in self._certain and self.is_certified(place):
            self._take(place)

    def _take(self, place: Place) -> None:
        """A token is certified, and so is all that it leads back to: note what they say, the oldest first."""
        chain: list[Place] = []
        while not self._certain.get(place, False):
            chain.append(place)
            seen = self._seen.get(place)
            if seen is None:
                break
            place = place[0] - 1, seen.token.prev_digest
        for one in reversed(chain):
            self._certain[one] = one in self._seen
            if one in self._seen:
                self._note(self._seen[one])
        while len(self._certain) > _CERTAIN_KEPT:
            del self._certain[next(iter(self._certain))]

    def _note(self, seen: _Seen) -> None:
        token, number = seen.token, seen.token.token_number
        self._newest = max(self._newest, number)
        if token.control and number > self._universe_at:
            self._universe, self._universe_at = universe_after(self._universe, token), number
        if seen.below:
            # A majority took it, so whatever lies below its run is in tokens before it.
            before = token.instant - self._timing.token_period_ns
            self._queue.setdefault(seen.first, self._certified(seen.first, number - 1, before))
            self._queue.setdefault(seen.below, self._certified(seen.below, number, token.instant))
        self.settled = max(self.settled, self._own(token.disclosures))
        for one in list(self._queue.values()):
            if one.last_use <= self._newest:
                self.settled = max(self.settled, one.below)
            if one.below <= self.settled:
                del self._queue[one.below]
        self._next_at = 0

    def _certified(self, below: int, token_number: int, instant: int) -> _Certified:
        return _Certified(below, self.not_before(instant), token_number + self._timing.reveal_tokens)

    def not_before(self, instant: int) -> int:
        """When a disclosure is early enough for token t+V, and no earlier, of messages with the instant of token t."""
        return instant + self._timing.reveal_ns - self._timing.recovery_ns

    def due(self, now: int) -> tuple[tuple[int, bytes], ...]:
        """The links to show now."""
        if now < self._next_at:
            return ()
        self._next_at = min([one.not_before for one in self._queue.values() if one.not_before > now], default=NEVER)
        below = max([one.below for one in self._queue.values() if one.not_before <= now], default=0)
        first = max(self.settled, self._carried, below - _CHAINS_SHOWN * CHAIN_LENGTH)
        if below <= first:
            return ()
        self._next_at = min(self._next_at, now + self._timing.retry_ns)
        return tuple(self._chain.links(first, below - 1)[-MAX_LINKS:])
