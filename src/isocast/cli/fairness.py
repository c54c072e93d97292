"""`isocast fairness`: of traders who react to the same news, who is first, by city and by rule."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import Count, Flag, MarketFile, Seed, duration_of
from isocast.cli.render import line, note, show_json, show_table
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.runtime.market.model import Market
    from isocast.studies.entry.figures import EntryFigures
    from isocast.studies.entry.journals import JournalOrders
    from isocast.studies.entry.reactions import PairEstimate
    from isocast.studies.entry.replay import ReplaySettings
    from isocast.studies.entry.stream import OrderStream
    from isocast.terms.topology import City

__all__ = ["app"]

app = App(
    name="fairness",
    help="Who is first: traders who react to the same news, by city, under each rule of entry; by journals too.",
    help_epilogue="Start with:\n\n    isocast fairness entry\n",
)

_Journals: TypeAlias = Annotated[tuple[Path, ...], Parameter(negative="")]
_Releases: TypeAlias = Annotated[int, Parameter(validator=Number(gte=1, lte=1_000_000))]
_RELEASED = "released"
"""What journals say, beside the rules."""
_TOLD = {
    _RELEASED: "as released, by the journals",
    "exchange": "one exchange, by arrival there",
    "arrival": "ring, by arrival at the owner",
    "shuffle": "ring, keyed shuffle",
    "batch": "ring, batch of the token",
    "hold": "one exchange, hold by timestamps",
    "chance": "pure chance",
}
_TOLD_OF_EVENTS = {
    _RELEASED: "the order of the sequence",
    "shuffle": "events by the token's key",
    "batch": "events of a token at one time",
}


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class EntryOptions:
    """Whose orders, under which rules, and what to write."""

    orders: Path | None = None
    """A table of orders in CSV instead of drawn ones: columns time_ns, city, and if known account and release."""
    journal: _Journals = ()
    """Journals of a market instead of drawn orders: a site's journal, or a data directory. Repeat it for several."""
    config: MarketFile = None
    """The market's file, for journals: where its sources and receivers are, and its token period."""
    by: str = "time"
    """Of journals, what competes: messages by time (within --within) or number (the n-th), or orders by their id."""
    within: str = "10ms"
    """Orders that begin within this time react to the same news, where nothing else says so."""
    cities: str | None = None
    """Where traders are, separated by commas; the ten cities of protocol §11 if left out."""
    ring: str | None = None
    """Where the owners of tokens are, in turn; the same ten cities if left out."""
    releases: _Releases = 50_000
    """Pieces of news that are drawn."""
    reaction: str = "1ms"
    """Mean of the exponential time in which a trader decides, the same in every city."""
    token_period: str | None = None
    """τ_t; 3s, or the market's, if left out."""
    ring_jitter: str = "0ms"
    """Mean of an exponential delay on the way to the ring."""
    exchange: str = "London"
    """Where the one exchange is."""
    jitter: str = "20ms"
    """Mean of an exponential delay on the way to the one exchange."""
    clock_error: str = "100us"
    """ε of the clocks that stamp orders for the hold: anywhere in ±ε."""
    hold: str = "200ms"
    """How long after its timestamp the hold lets an order in."""
    pair: str = "London,Sydney"
    """Two cities that have a column of their own."""
    seed: Seed = 1
    """What all draws are a function of."""
    rows: Count = 45
    """Pairs of cities in the table, the furthest from ½ first; --json has all."""
    svg: Path | None = None
    """Draw the pairs under each rule into this file (needs matplotlib: the extra `plots`)."""
    png: Path | None = None
    """The same as PNG."""
    json: Flag = False
    """Print one JSON object instead of tables."""


_USUAL = EntryOptions()


@app.command(
    help_epilogue="""Examples:

    isocast fairness entry

    isocast fairness entry --cities London,Sydney --reaction 0ms --releases 100000

    isocast fairness entry --exchange Tokyo --svg entry.svg

    isocast fairness entry --orders orders.csv --json

    isocast fairness entry --journal data --config market.toml

    isocast fairness entry --journal data --config market.toml --by id --within 5ms

Exit code: 0 the figures are there, 1 journals of a market that shuffles have a token out of the order of its key, 2 bad
input.
"""
)
def entry(*, options: EntryOptions = _USUAL) -> int:
    """Replay one stream of orders under every rule of entry: who is first, how far from ½ each pair of cities is."""
    from isocast.cli.sheet import check_pictures

    check_pictures(options.svg, options.png)
    if options.orders is not None and options.journal:
        raise ConfigurationError("command line", "--orders", "give either --orders FILE or --journal DIR")
    market = _market(options)
    held = _held(options, market) if options.journal else None
    ring = _ring(options, market)
    settings = _settings(options, market, ring)
    stream = _stream(options, settings) if held is None else held.stream
    found = _figures(stream, settings, options, held)
    _draw(found, stream.names, options)
    if options.json:
        show_json(_as_json(found, stream, settings, held, options))
    else:
        _show(found, stream, options)
        if held is not None:
            _show_journals(held, market, settings)
    return int(held is not None and market is not None and _departs(held, market))


# ---- What is replayed


def _market(options: EntryOptions) -> Market | None:
    if options.config is None:
        return None
    from isocast.runtime.market.file import load_market

    return load_market(options.config)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _held(options: EntryOptions, market: Market | None) -> JournalOrders:
    from isocast.studies.entry.journals import ContestKey, find_journals, read_journals, source_places

    keys = {key.value: key for key in ContestKey}
    if options.by not in keys:
        raise ConfigurationError("command line", "--by", f"is one of {', '.join(keys)}")
    places = {} if market is None else source_places(market)
    within_ns = duration_of(options.within, "--within")
    return read_journals(find_journals(options.journal), places, keys[options.by], within_ns)


def _ring(options: EntryOptions, market: Market | None) -> tuple[City, ...] | None:
    """The owners; None where journals are of a market whose receivers have no place."""
    from isocast.studies.entry.journals import market_ring
    from isocast.studies.entry.stream import cities_of

    if options.ring is not None:
        return cities_of(_names(options.ring), "--ring")
    if options.journal:
        return None if market is None else market_ring(market)
    return cities_of()


def _settings(options: EntryOptions, market: Market | None, ring: tuple[City, ...] | None) -> ReplaySettings | None:
    from isocast.studies.entry.replay import ReplaySettings
    from isocast.studies.entry.stream import cities_of

    if ring is None:
        return None
    usual = "3s" if market is None else f"{market.timing.token_period_ns}ns"
    period_ns = duration_of(options.token_period or usual, "--token-period")
    if period_ns <= 0:
        raise ConfigurationError("command line", "--token-period", "must be longer than nothing")
    [exchange] = cities_of([options.exchange], "--exchange")
    return ReplaySettings(
        ring,
        exchange,
        period_ns,
        duration_of(options.ring_jitter, "--ring-jitter"),
        duration_of(options.jitter, "--jitter"),
        duration_of(options.clock_error, "--clock-error"),
        duration_of(options.hold, "--hold"),
    )


def _stream(options: EntryOptions, settings: ReplaySettings | None) -> OrderStream:
    import numpy as np

    from isocast.studies.entry.stream import cities_of, draw_stream, read_stream

    if options.orders is not None:
        return read_stream(options.orders, duration_of(options.within, "--within"))
    cities = cities_of() if options.cities is None else cities_of(_names(options.cities))
    if len(cities) < 2:  # noqa: PLR2004 - a contest has two sides
        raise ConfigurationError("command line", "--cities", "name two or more: nobody competes alone")
    window_ns = 0 if settings is None else len(settings.ring) * settings.token_period_ns
    random = np.random.default_rng([options.seed, 1])
    reaction_ns = duration_of(options.reaction, "--reaction")
    return draw_stream(cities, options.releases, random, window_ns=window_ns, reaction_ns=reaction_ns)


def _figures(
    stream: OrderStream, settings: ReplaySettings | None, options: EntryOptions, held: JournalOrders | None
) -> list[EntryFigures]:
    from isocast.studies.entry.figures import entry_figures
    from isocast.studies.entry.replay import EntryReplay, ReplayRule

    found = [] if held is None else [entry_figures(stream, held.sequences, _RELEASED)]
    if settings is not None and None not in stream.places:
        replay = EntryReplay(stream, settings, options.seed)
        found += [entry_figures(stream, replay.ranks(rule), rule.value) for rule in ReplayRule]
    return found


# ---- What is shown


def _chosen(options: EntryOptions, stream: OrderStream) -> tuple[str, str] | None:
    """The pair with a column of its own, if both of it trade here."""
    from isocast.studies.entry.stream import cities_of

    names = tuple(place.name for place in cities_of(_names(options.pair), "--pair"))
    if len(names) != 2:  # noqa: PLR2004
        raise ConfigurationError("command line", "--pair", "is two cities, such as London,Sydney")
    if set(names) <= set(stream.names):
        return names[0], names[1]
    return (stream.names[0], stream.names[1]) if len(stream.names) > 1 else None


def _show(found: list[EntryFigures], stream: OrderStream, options: EntryOptions) -> None:
    pair = _chosen(options, stream)
    told = "first place" if pair is None else f"{pair[0]} before {pair[1]}"
    contests = found[0].contests if found else 0
    rows = []
    for one in found:
        chosen = None if pair is None else one.pair(*pair)
        worst = one.worst
        rows.append((
            _TOLD[one.rule],
            "–" if chosen is None else f"{chosen.share:.3f}",
            "–" if worst is None else f"{worst.first} – {worst.second}",
            "–" if worst is None else f"{worst.share:.3f}",
            "–" if worst is None else f"{worst.distance:+.3f}",
            "–" if worst is None else f"{worst.standard_errors:+.1f}",
            f"{one.out_of_sequence:.2%}",
        ))  # fmt: skip
    headers = ("rule", told, "worst pair", "share", "from ½", "standard errors", "out of sequence")
    show_table(f"Entry: {counted(stream.orders, 'order')} in {counted(contests, 'contest')}", headers, rows)
    rules = [one.rule for one in found]
    show_table(
        f"First places by city, an even share is {1 / max(len(stream.names), 1):.3f}",
        ("city", *rules),
        [(name, *(f"{one.first[name]:.3f}" for one in found)) for name in stream.names],
    )
    ordered = sorted(
        found[0].pairs, key=lambda pair: -max(abs(_share(one, pair.first, pair.second) - 0.5) for one in found)
    )
    shown = ordered[: options.rows]
    more = f", {len(shown)} of {len(ordered)}" if len(shown) < len(ordered) else ""
    error = f"{0.5 / max(contests, 1) ** 0.5:.4f}"
    show_table(
        f"Distance from ½ of each pair{more}; chance alone is off by {error} if contests are independent",
        ("first", "second", *rules),
        [
            (pair.first, pair.second, *(f"{_share(one, pair.first, pair.second) - 0.5:+.3f}" for one in found))
            for pair in shown
        ],
    )


def _share(figures: EntryFigures, first: str, second: str) -> float:
    pair = figures.pair(first, second)
    return 0.5 if pair is None else pair.share


def _departs(held: JournalOrders, market: Market) -> bool:
    """Whether a market that shuffles has a token that is not in the order of its key."""
    from isocast.ring.settings import OrderRule

    return market.order is OrderRule.SHUFFLE and any(one.other for one in held.shuffles.values())


def _expected(
    held: JournalOrders, market: Market | None, settings: ReplaySettings | None, *, shuffles: bool = False
) -> list[tuple[str, str, float]]:
    """By the formulas, for each pair of cities of a market whose rule and places are known, or if it `shuffles`."""
    from itertools import combinations

    from isocast.ring.settings import OrderRule
    from isocast.studies.entry.figures import arrival_share, shuffle_share

    if market is None or settings is None:
        return []
    share = shuffle_share if shuffles or market.order is OrderRule.SHUFFLE else arrival_share
    places = [place for place in held.stream.places if place is not None]
    return [
        (one.name, two.name, share(settings.ring, one, two, settings.token_period_ns))
        for one, two in combinations(places, 2)
    ]


def _estimates(
    held: JournalOrders, market: Market | None, settings: ReplaySettings | None
) -> list[tuple[str, PairEstimate, float | None]]:
    """For each rule and pair of cities: what the journals say of orders by id, and what the formula expects."""
    from itertools import combinations

    from isocast.terms.entry import EntryRule

    if held.reactions is None:
        return []
    released = {(first, second): share for first, second, share in _expected(held, market, settings)}
    even = {(first, second): share for first, second, share in _expected(held, market, settings, shuffles=True)}
    owners = 1 if settings is None else len(settings.ring)
    rows = []
    for rule in EntryRule:
        name, expected = (_RELEASED, released) if rule is EntryRule.ARRIVAL else (rule.value, even)
        for pair in combinations(held.stream.names, 2):
            found = held.reactions.estimate(rule, pair, owners)
            if found is not None:
                rows.append((name, found, expected.get(pair)))
    return rows


def _show_reactions(held: JournalOrders, market: Market | None, settings: ReplaySettings | None) -> None:
    found = _estimates(held, market, settings)
    rows = [
        (
            _TOLD_OF_EVENTS[rule],
            f"{one.first} – {one.second}",
            f"{one.contests:,}",
            f"{one.tokens:,}",
            f"{one.share:.4f}",
            "–" if one.standard_error is None else f"{one.standard_error:.4f}",
            "–" if expected is None else f"{expected:.4f}",
            f"{one.ahead_ns / 1e6:+.3f} ms",
        )
        for rule, one, expected in found
    ]
    headers = ("rule", "first – second", "contests", "tokens", "share", "error", "formula", "decided ahead")
    show_table("Orders by id, from the journals: the first before the second", headers, rows)
    line("Errors are of whole tokens, since contests of one token are not independent; owners weigh alike.")
    if held.reactions is not None:
        out = held.reactions.left_out
        line(
            f"Left out: {counted(out.alone, 'order')} that nobody competed with, {out.repeated:,} of an id that a city"
            f" used twice, {counted(out.apart, 'contest')} decided too far apart, {counted(out.other_events, 'event')}"
            f" that are no orders, {counted(out.opaque_messages, 'message')} without events."
        )


def _show_journals(held: JournalOrders, market: Market | None, settings: ReplaySettings | None) -> None:
    if held.reactions is None:
        for first, second, share in _expected(held, market, settings):
            line(f"Expected by the formula: {first} before {second} {share:.3f}")
    else:
        _show_reactions(held, market, settings)
    if held.untimed:
        line(f"Left out: {counted(held.untimed, 'message')} that do not say when they happened.")
    for journal, found in held.shuffles.items():
        mixed = found.verified + found.other
        told = f"{found.verified:,} of {counted(mixed, 'token')} with messages of several sources"
        line(f"{journal}: {told} stand in the order of their keys.")
        if found.first_other is not None and market is not None and _departs(held, market):
            line(f"  WRONG: the market shuffles, and token {found.first_other} is not where its key puts it (F5)")
    if settings is None:
        line("With --config, and cities of all nodes in it, the same orders are replayed under the other rules.")


def _as_json(
    found: list[EntryFigures],
    stream: OrderStream,
    settings: ReplaySettings | None,
    held: JournalOrders | None,
    options: EntryOptions,
) -> dict[str, object]:
    return {
        "seed": options.seed,
        "orders": stream.orders,
        "contests": stream.contests,
        "cities": list(stream.names),
        "settings": None if settings is None else _settings_as_json(settings),
        "rules": [one.as_json() for one in found],
        "journals": None
        if held is None
        else {
            "tokens": held.tokens,
            "untimed_messages": held.untimed,
            "shuffles": {str(path): asdict(one) for path, one in held.shuffles.items()},
            "expected": [
                {"first": first, "second": second, "share": share}
                for first, second, share in _expected(held, _market(options), settings)
            ],
            "estimates": [
                {"rule": rule, **one.as_json(), "expected": expected}
                for rule, one, expected in _estimates(held, _market(options), settings)
            ],
            "left_out": None if held.reactions is None else held.reactions.left_out.as_json(),
        },
    }


def _settings_as_json(settings: ReplaySettings) -> dict[str, object]:
    return {
        **asdict(settings),
        "ring": [place.name for place in settings.ring],
        "exchange": settings.exchange.name,
    }


def _draw(found: list[EntryFigures], names: tuple[str, ...], options: EntryOptions) -> None:
    for path, kind in ((options.svg, "svg"), (options.png, "png")):
        if path is not None:
            from isocast.cli.fairness_picture import entry_picture

            path.write_bytes(entry_picture(found, names, _TOLD, kind))
            note(f"Written: {path}")
