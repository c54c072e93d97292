"""Which stripe of the core a symbol travels in, alike at every floor; and which ones a customer follows (§4.4, §7.1).

With a stripe plan, a symbol belongs to the core stripe of its narrow stripe, and one that the plan does not name to
the plan's first core stripe. Without a plan, symbols are split by a hash of their names: BLAKE2b with a digest of 8
bytes over the characters, as a big-endian number, modulo the number of stripes, counts into the ascending list of
stripes.

A topic of opaque messages travels in one stripe, by the same hash of its name, with a plan or without: a topic's order
is that of one sequence, whatever the keys of its messages.

An event of no symbol, such as a floor's opening, is for everybody: it goes into every stripe. The first of them has it
as it is; in the others it is marked COPIED, so that whoever hears several stripes counts it once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from isocast.striping.plan import EdgeStripe, StripePlan
from isocast.striping.rates import rate_text
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.market import SYMBOL_BYTES, EventFlag, Symbol
from isocast.wire.events import EVENT_DTYPE, EventArray, are_events
from isocast.wire.opaque import OpaqueMessage, check_topic, is_opaque, read_opaque_or_none

__all__ = ["CoreRoutes", "CustomerStripes", "choose_stripes", "heard_once", "stripes_for", "symbol_hash"]


_COPIED = int(EventFlag.COPIED)
_HASH_BYTES = 8
_REMEMBERED = 1 << 20
"""Bounds: symbols whose hash is remembered."""


def symbol_hash(name: bytes) -> int:
    """A number below 2^64; modulo the number of stripes it is the place of a symbol that no plan names."""
    return int.from_bytes(blake2b(name, digest_size=_HASH_BYTES).digest())


class CoreRoutes:
    """The stripe of every symbol, and events taken apart by it."""

    def __init__(self, stripes: Iterable[int], plan: StripePlan | None = None) -> None:
        """ConfigurationError for a plan with a core stripe that the market does not have."""
        self.stripes = tuple(sorted(stripes))
        self.plan = plan
        strange = [core for core in plan.cores if core not in self.stripes] if plan is not None else []
        if plan is not None and strange:
            listed = ", ".join(map(str, self.stripes))
            raise ConfigurationError(plan.file, "core", f"stripe {strange[0]} is not in ring.stripes ({listed})")
        self._known: dict[bytes, int] = {}

    def stripe_of(self, symbol: str) -> int:
        """Of one symbol."""
        return int(self.stripes_of(np.array([symbol.encode("ascii")], f"S{SYMBOL_BYTES}"))[0])

    def stripe_of_topic(self, topic: str) -> int:
        """Of a topic of opaque messages; LocalProtocolError for what is no topic."""
        return self.stripes[symbol_hash(check_topic(topic).encode("ascii")) % len(self.stripes)]

    def split_topics(self, messages: Iterable[OpaqueMessage], among: Collection[int]) -> dict[int, list[OpaqueMessage]]:
        """The messages of each stripe, in their order; LocalProtocolError for a topic of a stripe outside `among`."""
        parts: dict[int, list[OpaqueMessage]] = {}
        for message in messages:
            stripe = self.stripe_of_topic(message.topic)
            if stripe not in among:
                rule = f"topic {message.topic} travels in stripe {stripe}, where this source does not publish"
                raise LocalProtocolError(rule)
            parts.setdefault(stripe, []).append(message)
        return parts

    def stripes_of(self, symbols: npt.NDArray[np.bytes_]) -> npt.NDArray[np.uint16]:
        """Of each symbol; for an event of no symbol the first stripe."""
        if len(self.stripes) == 1:
            return np.full(len(symbols), self.stripes[0], np.uint16)
        if self.plan is not None:
            found = self.plan.cores_of(symbols)
        else:
            names, places = np.unique(symbols, return_inverse=True)
            found = np.array([self._hashed(name) for name in names.tolist()], np.uint16)[places]
        return np.where(symbols == b"", np.uint16(self.stripes[0]), found).astype(np.uint16)

    def _hashed(self, name: bytes) -> int:
        known = self._known.get(name)
        if known is None:
            known = self.stripes[symbol_hash(name) % len(self.stripes)]
            if len(self._known) < _REMEMBERED:
                self._known[name] = known
        return known

    def split(self, events: EventArray, among: Collection[int] | None = None) -> dict[int, EventArray]:
        """The events of each stripe that has any, in their order; events of no symbol in every one, or in `among`.

        LocalProtocolError for a symbol whose stripe is not in `among`.
        """
        return {stripe: self.part(events, stripe, mask, among) for stripe, mask in self.masks(events, among).items()}

    def masks(self, events: EventArray, among: Collection[int] | None = None) -> dict[int, npt.NDArray[np.bool_]]:
        """Which events each stripe has, of those that have any; LocalProtocolError for a symbol outside `among`."""
        if len(self.stripes) == 1:
            return {self.stripes[0]: np.ones(len(events), np.bool_)} if len(events) else {}
        wide = self.stripes if among is None else tuple(sorted(among))
        found = self.stripes_of(events["symbol"])
        everybodys = events["symbol"] == b""
        named = np.unique(found[~everybodys]).tolist()
        if strange := [stripe for stripe in named if stripe not in wide]:
            symbol = events["symbol"][found == strange[0]][0].decode("ascii", "replace")
            raise LocalProtocolError(f"{symbol} travels in stripe {strange[0]}, where this source does not publish")
        return {
            stripe: (found == stripe) | everybodys for stripe in sorted({*named, *(wide if everybodys.any() else ())})
        }

    def part(
        self, events: EventArray, stripe: int, mask: npt.NDArray[np.bool_], among: Collection[int] | None = None
    ) -> EventArray:
        """The events of a mask, with copies marked as such."""
        part = events[mask]
        everybodys = part["symbol"] == b""
        if stripe > min(self.stripes if among is None else among):
            part["flags"][everybodys] |= _COPIED
        else:
            part["flags"][everybodys] &= ~np.uint16(_COPIED)
        return part

    def strangers(self, stripe: int, payloads: Iterable[bytes]) -> Iterator[tuple[str, int]]:
        """(symbol or topic, its stripe) of what is not for a stripe; what is neither is nobody's."""
        for payload in payloads:
            if is_opaque(payload):
                homes = [(one.topic, self.stripe_of_topic(one.topic)) for one in read_opaque_or_none(payload) or ()]
                yield from [(topic, home) for topic, home in homes if home != stripe]
                continue
            if not are_events(payload):
                continue
            symbols = np.frombuffer(payload, EVENT_DTYPE)["symbol"]
            wrong = np.flatnonzero((self.stripes_of(symbols) != stripe) & (symbols != b""))
            if len(wrong):
                name = symbols[wrong[0]].item()
                yield name.decode("ascii"), self.stripe_of(name.decode("ascii"))

    def record(self) -> dict[str, object]:
        """What a source remembers of them, to see that no symbol ever changes its stripe."""
        cores: dict[str, list[str]] = {}
        if self.plan is not None:
            for stripe in self.plan.stripes:
                cores.setdefault(str(stripe.core), []).extend(stripe.symbols)
        return {"stripes": list(self.stripes), "planned": self.plan is not None, "cores": cores}

    def moved(self, record: Mapping[str, object]) -> str:
        """Why symbols would travel elsewhere than where the record has them; empty if none does."""
        before = record.get("stripes")
        if before != list(self.stripes):
            return f"the market's stripes were {_listed(before)} and are {_listed(list(self.stripes))}"
        if record.get("planned") is not (self.plan is not None):
            return "symbols were split by a stripe plan, or by a hash, and are now split by the other"
        cores = record.get("cores")
        if self.plan is None or not isinstance(cores, dict):
            return ""
        named: dict[str, int] = {symbol: int(core) for core, symbols in cores.items() for symbol in symbols}
        stranger = min(map(int, cores), default=self.plan.cores[0])
        for stripe in self.plan.stripes:
            for symbol in stripe.symbols:
                was = named.pop(symbol, stranger)
                if was != stripe.core:
                    return f"{symbol} travelled in stripe {was}, and the plan has it in stripe {stripe.core}"
        gone = next((symbol for symbol, core in named.items() if core != self.plan.cores[0]), None)
        if gone is not None:
            return f"{gone} travelled in stripe {named[gone]}, and the plan names it no more"
        return ""


def _listed(stripes: object) -> str:
    return ", ".join(map(str, stripes)) if isinstance(stripes, list) else str(stripes)


def heard_once(events: EventArray, stripe: int, heard: Collection[int]) -> npt.NDArray[np.bool_] | None:
    """Which events of a stripe count for a customer of several; None: all. A copy counts in the lowest stripe alone."""
    if len(heard) < 2 or stripe == min(heard):  # noqa: PLR2004 - one has no other
        return None
    copied = ((events["flags"] & _COPIED) > 0) & (events["symbol"] == b"")
    return ~copied if copied.any() else None


# ---- What a customer follows: the stripes of its symbols, or as many as its line can take (§4.4, §7.1).


_NAMED = 5
"""Stripes that a message lists."""


@dataclass(frozen=True, slots=True)
class CustomerStripes:
    """The stripes of one customer, in the order of their numbers."""

    stripes: tuple[EdgeStripe, ...]
    line_rate: int | None = None
    """Bits a second of the customer's line, if it said."""
    unnamed: tuple[str, ...] = ()
    """Symbols that were asked for and that no stripe names: they would come on a spare stripe."""

    @property
    def rate(self) -> int:
        """Bits a second of all stripes together."""
        return sum(stripe.rate for stripe in self.stripes)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The stripes by number."""
        return tuple(stripe.number for stripe in self.stripes)

    @property
    def symbols(self) -> int:
        """How many symbols they carry."""
        return sum(len(stripe.symbols) for stripe in self.stripes)


def stripes_for(plan: StripePlan, symbols: Iterable[str]) -> CustomerStripes:
    """The stripes on which some symbols travel. ConfigurationError for what is no symbol."""
    names = []
    for symbol in symbols:
        try:
            names.append(Symbol(symbol))
        except LocalProtocolError as reason:
            raise ConfigurationError("customer", "symbols", str(reason)) from None
    numbers = plan.stripes_of(np.array(names, f"S{SYMBOL_BYTES}")).tolist()
    chosen = tuple(plan.by_number[number] for number in sorted(set(numbers)))
    unnamed = [str(name) for name, number in zip(names, numbers, strict=True) if plan.by_number[number].spare]
    return CustomerStripes(chosen, None, tuple(unnamed))


def choose_stripes(
    plan: StripePlan, line_rate: int, symbols: Iterable[str] = (), preferred: Sequence[int] = ()
) -> CustomerStripes:
    """Stripes that fit a line: those of the symbols, all of them; without symbols, the preferred, then the others.

    ConfigurationError says what does not fit, and what would.
    """
    wanted = stripes_for(plan, symbols)
    if wanted.stripes:
        if wanted.rate > line_rate:
            raise ConfigurationError("customer", "rate", _too_much(wanted, line_rate))
        return CustomerStripes(wanted.stripes, line_rate, wanted.unnamed)
    for number in preferred:
        if number not in plan.by_number:
            raise ConfigurationError("customer", "stripes", f"the plan has no stripe {number}")
    # Stripes that name symbols come before spare ones, which are mostly silent.
    others = sorted([s for s in plan.stripes if s.number not in preferred], key=lambda s: (s.spare, s.number))
    chosen, left = [], line_rate
    for stripe in [*[plan.by_number[number] for number in dict.fromkeys(preferred)], *others]:
        if stripe.rate <= left:
            chosen.append(stripe)
            left -= stripe.rate
    if not chosen:
        least = min(plan.stripes, key=lambda stripe: stripe.rate)
        rule = (
            f"no stripe fits {rate_text(line_rate)}: the narrowest, {least.name}, has {rate_text(least.rate)}; "
            "plan narrower stripes (isocast plan stripes --rate)"
        )
        raise ConfigurationError("customer", "rate", rule)
    return CustomerStripes(tuple(sorted(chosen, key=lambda stripe: stripe.number)), line_rate)


def _too_much(wanted: CustomerStripes, line_rate: int) -> str:
    named = ", ".join(f"{stripe.name} {rate_text(stripe.rate)}" for stripe in wanted.stripes[:_NAMED])
    more = len(wanted.stripes) - _NAMED
    listed = named + (f" and {more} more" if more > 0 else "")
    fit, left = 0, line_rate
    for rate in sorted(stripe.rate for stripe in wanted.stripes):
        if rate > left:
            break
        fit, left = fit + 1, left - rate
    return (
        f"the symbols are on {len(wanted.stripes)} stripes of {rate_text(wanted.rate)} together ({listed}); "
        f"a line of {rate_text(line_rate)} takes {fit or 'none'} of them: choose fewer symbols"
    )
