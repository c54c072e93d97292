"""`isocast plan`: what follows from a network's figures, before anything runs; its options, and the plan of times."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from isocast.cli.options import Flag
from isocast.cli.render import line, show_json, show_table, working
from isocast.cli.world_options import EXAMPLE as WORLD_EXAMPLE
from isocast.cli.world_options import WorldOptions
from isocast.simulation.scenario import scenario_from_mapping
from isocast.simulation.scenario_keys import LAYERS_MAX
from isocast.terms import timing as formulas
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import from_seconds, to_seconds
from isocast.terms.timing import Formula, Timing, number, seconds

__all__ = ["EXAMPLE", "CoverageOptions", "StripeOptions", "TimingOptions", "TimingPlan", "app", "make_plan"]


# ---- What `isocast plan coverage` may be asked, and a world to start from.


_LATEST_S = 4_000_000_000
_NARROWEST, _WIDEST = 100, 8_000

EXAMPLE = """# A world for `isocast plan coverage`: who receives, who listens, and what a plan must keep.
title = "Five cities"
seed = 7

[scopes]
lines = 2             # every customer hears two sources
delay_max = "30ms"    # within what a packet travels in this time
loss_max = 0.02

[addresses]
first = "239.192.0.0"
count = 64
drain = "30s"         # how long an address rests before it is used again nearby

[[receiver]]
city = "New York"

[[receiver]]
city = "Chicago"

[[receiver]]
city = "London"

[[receiver]]
city = "Frankfurt"

[[receiver]]
name = "madrid"
latitude = 40.42
longitude = -3.70

[customers]
pattern = "cities"    # or "land", "even"; or list them as [[customer]]
cities = ["New York", "Toronto", "London", "Paris", "Zurich"]
count = 500
spread = 150          # km
"""


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class CoverageOptions:
    """Of one run."""

    example: Flag = False
    """Print a world file to start from, and do nothing else."""
    from_: Annotated[Path | None, Parameter(name="--from")] = None
    """The plan in force, as --out wrote it: adjust it with few changes instead of planning from scratch."""
    without: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """A receiver that has failed; may be repeated."""
    now: float | None = None
    """The instant of the plan, in seconds since 1970, from which addresses drain; this moment if left out."""
    out: Path | None = None
    """Write the plan to this JSON file."""
    svg: Path | None = None
    """Draw the map into this file."""
    png: Path | None = None
    """Draw the map into this file."""
    width: int = 1600
    """Of the map, in pixels, 100 to 8,000."""
    rows: int = 40
    """Rows of a table at most."""
    customers: Flag = False
    """Also list which sources each customer hears."""
    strict: Flag = False
    """Exit with 1 if a customer hears fewer sources than the world asks for."""
    json: Flag = False
    """Print one JSON object instead of tables."""

    def file(self, world: Path | None) -> Path:
        """The world file, once all options are judged; ConfigurationError for what no plan can be made with."""
        if world is None:
            raise ConfigurationError("command line", "WORLD", "is missing: name a world file; --example prints one")
        if self.now is not None and not 0 <= self.now < _LATEST_S:
            raise ConfigurationError("command line", "--now", f"must be from 0 to {_LATEST_S:,} s, not {self.now:g}")
        if not _NARROWEST <= self.width <= _WIDEST:
            rule = f"must be from {_NARROWEST} to {_WIDEST:,} pixels, not {self.width}"
            raise ConfigurationError("command line", "--width", rule)
        if self.rows < 1:
            raise ConfigurationError("command line", "--rows", f"must be at least 1, not {self.rows}")
        return world


# ---- What `isocast plan stripes` may be asked.


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class StripeOptions:
    """Of one run."""

    rate: str = "56k"
    """Bit-rate of a narrow stripe over any token period, IP headers included: 56k, 1.5M, 45M."""
    core: int = 1
    """How many core stripes there are; sectors are divided among them. With --from, the plan's own."""
    sectors: Path | None = None
    """A table of text with the columns symbol and sector, gzip too: what is related."""
    headroom: float = 0.5
    """How much busier than the history a day may be: 0.5 is half as busy again."""
    patience: int = 4
    """Token periods that a stripe may fall behind before it is conflated, 0 to 1,000."""
    token_period: str = "1s"  # noqa: S105 - a time, not a secret
    """Of the ring, such as 1s or 50ms; with --from, the plan's own."""
    from_: Annotated[Path | None, Parameter(name="--from")] = None
    """The plan in force: adjust it with few moves; without a history, only judge it by --check."""
    out: Path | None = None
    """Write the plan to this file, TOML, or JSON if it is named so."""
    check: Annotated[tuple[Path, ...], Parameter(negative="")] = ()
    """A day that the plan was not made from: does it hold there? May be repeated."""
    mapping: str | None = None
    """The columns of tables: a mapping that is built in, or a TOML file."""
    day: str | None = None
    """The day of feeds whose names do not say."""
    svg: Path | None = None
    """Draw peaks, kinship and what listeners join into this file (the extra `spark` has what it takes)."""
    png: Path | None = None
    """Draw the same into this file."""
    width: int = 1800
    """Of the picture, in pixels, 600 to 8,000."""
    rows: int = 40
    """Rows of a table at most."""
    json: Flag = False
    """Print one JSON object instead of tables."""


# ---- The plan behind `isocast plan timing`: options in, derived times with their formulas out.


_OPTION_OF_KEY = {"retries_max": "--retries", "one_way_delay": "--delay"}
_RECEIVERS = 10
_SECONDARY = ("secondary_detect", "secondary_retry")


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class TimingOptions:
    """What is known of a network. Times are in seconds; what is left out takes the paper's value."""

    detect: float = 0.375
    """δ_N: a token later than this is taken for lost."""
    transmit: float = 0.0
    """X: time to transmit a request and its answer."""
    process: float = 0.05
    """P: time to process a request and its answer."""
    retries: int = 3
    """k_r: requests before a receiver gives up."""
    clock_error: float = 0.0
    """ε: no clock is further than this from true time."""
    receivers: int | None = None
    """m: receivers on the ring; 10 if left out."""
    gate: Literal["timed", "majority", "next", "total"] = "timed"
    """What a release waits for, besides its instant."""
    next_tokens: int = 1
    """L: tokens that must follow under the gate next."""
    nack_sets: int = 1
    """k_p: sets of receivers that take turns in asking (§5.2)."""
    reveal: Literal["seal", "chain"] = "seal"
    """Who opens payloads: receivers at the release, or nobody before the source discloses the key (§6)."""
    reveal_tokens: int = 2
    """V: tokens within which a disclosed key must be acknowledged; counts with --reveal chain."""
    layers: str = "1"
    """1, 2, 3, or the sizes of the chained rings, such as 10,10 or 10,10,10."""
    secondary_detect: float | None = None
    """δ_S: detection in each layer below the first; δ_N if left out."""
    secondary_retry: float | None = None
    """τ_{r,S}: retry interval of each layer below the first; 2δ_S+X+P if left out."""
    retry: float | None = None
    """τ_r, if not the shortest allowed."""
    token_period: float | None = None
    """τ_t, if not the shortest allowed."""
    release_delay: float | None = None
    """Δ_A, if not the shortest allowed."""
    delay: float = 0.05
    """d: one-way delay from a source, for the mean latency."""
    loss: float = 0.0
    """p: share of packets lost, for the mean latency."""


@dataclass(frozen=True, slots=True)
class _Derived:
    key: str
    label: str
    section: str
    formula: Formula
    unit: str = "s"
    given: float | None = None
    """A value that the user chose above the formula's."""

    @property
    def value(self) -> float:
        return self.formula.value if self.given is None else self.given

    def row(self) -> tuple[str, ...]:
        least = "" if self.given is None else "≥ "
        label = f"{self.label} ({self.section})"
        value = f"{number(self.value)} {self.unit}"
        return (label, self.formula.symbol, least + self.formula.symbols, least + self.formula.numbers, value)

    def as_json(self) -> dict[str, object]:
        formula = self.formula
        return {
            "key": self.key,
            "meaning": self.label,
            "section": self.section,
            "symbol": formula.symbol,
            "formula": formula.symbols,
            "numbers": formula.numbers,
            "least": formula.value,
            "value": self.value,
            "unit": self.unit,
        }


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """All that follows from the options."""

    given: tuple[tuple[str, str, float | str], ...]
    """Name, symbol, value."""
    derived: tuple[_Derived, ...]
    nack_sets: tuple[tuple[int, ...], ...]
    """S_0, S_1, … for a token that site 0 sent."""
    timing: Timing

    def given_rows(self) -> list[tuple[str, ...]]:
        """For a table."""
        return [(name, symbol, _shown(value)) for name, symbol, value in self.given]

    def derived_rows(self) -> list[tuple[str, ...]]:
        """For a table."""
        return [entry.row() for entry in self.derived]

    def set_rows(self) -> list[tuple[str, ...]]:
        """For a table: the i-th set asks from T_{t+i}+δ_N+2ε on."""
        rows: list[tuple[str, ...]] = []
        for place, sites in enumerate(self.nack_sets):
            start = place * self.timing.token_period_ns + self.timing.late_ns
            rows.append((f"S_{place}", f"T_t+{seconds(start)} s", ", ".join(map(str, sites))))
        return rows

    def as_json(self) -> dict[str, object]:
        """One object: what was given, what follows, and how."""
        return {
            "given": {name.replace("-", "_"): value for name, _, value in self.given},
            "derived": {entry.key: entry.value for entry in self.derived},
            "nack_sets": [list(sites) for sites in self.nack_sets],
            "formulas": [entry.as_json() for entry in self.derived],
        }


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else number(value)


def make_plan(options: TimingOptions) -> TimingPlan:
    """Check the options as a scenario's keys are checked, then derive."""
    rings = _rings(options)
    timing = _timing(options, rings)
    delay_ns = from_seconds(options.delay)
    size = timing.ring_size
    tokens = "tokens"
    derived = [
        _Derived("retry_s", "between two requests", "§5.1", formulas.retry(timing), given=options.retry),
        _Derived(
            "token_period_s", "between two tokens", "§5.1", formulas.token_period(timing), given=options.token_period
        ),
        _Derived(
            "release_delay_s",
            "timestamp to release",
            "§5.1",
            formulas.release_delay(timing),
            given=options.release_delay,
        ),
        _Derived("skew_bound_s", "release skew at most", "§5", formulas.skew(timing)),
        _Derived("all_complete_s", "all complete before anyone releases", "§5.1", formulas.all_complete(timing)),
        _Derived("latency_mean_s", "mean submit to release", "§5.1", formulas.latency(timing, delay_ns, options.loss)),
        _Derived("passes_all_have", "passes until all have it", "§2.1", formulas.passes_all_have(size), tokens),
        _Derived("passes_all_know", "passes until all know it", "§2.1", formulas.passes_all_know(size), tokens),
        _Derived("trade_confirmed", "trade of token t confirmed", "§7.3", formulas.trade_confirmed(size), tokens),
        _Derived("detection_worst_s", "failure found at the latest", "§5", formulas.detection_worst(timing)),
        _Derived(
            "detection_with_receipts_s",
            "failure found with receipts, about",
            "§5",
            formulas.detection_with_receipts(timing),
        ),
        _Derived("reformation_s", "ballot to first new token at most", "§4.3", formulas.reformation(timing)),
    ]
    if timing.reveal_tokens:
        derived[3:3] = [
            _Derived("reveal_s", "of it, for disclosed keys", "§6", formulas.reveal(timing)),
            _Derived("early_reading_s", "readable before release at most", "§6", formulas.early_reading(timing)),
        ]
    if len(rings) > 1:
        lower = formulas.secondary_retry(timing)
        label = "between two requests below the ring"
        derived.insert(1, _Derived("secondary_retry_s", label, "§4.1", lower, given=options.secondary_retry))
        certify = formulas.passes_to_certify(rings)
        derived.append(_Derived("passes_to_certify", "passes to certify every R_T", "§4.1", certify, tokens))
    sets = formulas.nack_sets(size, timing.nack_sets)
    return TimingPlan(_given(options, timing, rings), tuple(derived), sets, timing)


def _error(option: str, rule: str) -> ConfigurationError:
    return ConfigurationError("command line", option, rule)


def _rings(options: TimingOptions) -> tuple[int, ...]:
    """The sizes of the rings, the primary one first."""
    parts = options.layers.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise _error("--layers", f'must be 1 to {LAYERS_MAX}, or sizes such as 10,10, not "{options.layers}"')
    numbers = tuple(map(int, parts))
    if len(numbers) == 1:
        if not 1 <= numbers[0] <= LAYERS_MAX:
            rule = f"must be 1 to {LAYERS_MAX} layers, not {numbers[0]}; sizes are written such as 10,10"
            raise _error("--layers", rule)
        return (_RECEIVERS if options.receivers is None else options.receivers,) * numbers[0]
    if len(numbers) > LAYERS_MAX or min(numbers) < 2:  # noqa: PLR2004  # a ring of one is none
        rule = f"must be at most {LAYERS_MAX} ring sizes, each at least 2, such as 10,10"
        raise _error("--layers", f'{rule}, not "{options.layers}"')
    if options.receivers not in (None, numbers[0]):
        raise _error("--receivers", f"must be the first ring of --layers, {numbers[0]}, not {options.receivers}")
    return numbers


def _timing(options: TimingOptions, rings: tuple[int, ...]) -> Timing:
    mapping: dict[str, object] = {
        "detect": options.detect,
        "transmit": options.transmit,
        "process": options.process,
        "retries_max": options.retries,
        "clock_error": options.clock_error,
        "receivers": rings[0],
        "gate": options.gate,
        "next_tokens": options.next_tokens,
        "nack_sets": options.nack_sets,
        "one_way_delay": options.delay,
        "loss": options.loss,
    }
    if options.reveal == "chain":
        mapping |= {"reveal": "chain", "reveal_tokens": options.reveal_tokens}
    for key in ("retry", "token_period", "release_delay"):
        if getattr(options, key) is not None:
            mapping[key] = getattr(options, key)
    mapping |= _lower_layers(options, len(rings))
    try:
        return scenario_from_mapping(mapping).timing
    except ConfigurationError as error:
        option = _OPTION_OF_KEY.get(error.key, "--" + error.key.replace("_", "-"))
        raise _error(option, error.rule) from error


def _lower_layers(options: TimingOptions, layers: int) -> dict[str, object]:
    """Keys of a scenario with so many layers (§4.1). One child each will do: no time depends on how many there are."""
    given = {key: getattr(options, key) for key in _SECONDARY if getattr(options, key) is not None}
    for key, value in given.items():
        option = "--" + key.replace("_", "-")
        if layers == 1:
            raise _error(option, "is of a second layer: add --layers 2")
        if not isfinite(value) or from_seconds(value) <= 0:
            raise _error(option, f"must be a time in seconds, more than 0, not {value}")
    return {"secondaries": 1, "layers": layers, **given} if layers > 1 else {}


_SYMBOLS = {
    "detect": "δ_N",
    "transmit": "X",
    "process": "P",
    "retries": "k_r",
    "clock_error": "ε",
    "next_tokens": "L",
    "nack_sets": "k_p",
    "delay": "d",
    "loss": "p",
}


def _given(options: TimingOptions, timing: Timing, rings: tuple[int, ...]) -> tuple[tuple[str, str, float | str], ...]:
    """The options that count, with the defaults that were taken."""
    values = asdict(options)
    rows: list[tuple[str, str, float | str]] = [
        (name.replace("_", "-"), symbol, values[name]) for name, symbol in _SYMBOLS.items()
    ]
    rows.append(("receivers", "m", rings[0]))
    rows.append(("gate", "", options.gate))
    if timing.reveal_tokens:
        rows += [("reveal", "", options.reveal), ("reveal-tokens", "V", timing.reveal_tokens)]
    if len(rings) > 1:
        rows.append(("layers", ",".join("abc"[: len(rings)]), ",".join(map(str, rings))))
        rows.append(("secondary-detect", "δ_S", to_seconds(timing.secondary_detect_ns)))
        rows.append(("secondary-retry", "τ_{r,S}", to_seconds(timing.secondary_retry_ns)))
    return tuple(rows)


app = App(
    name="plan",
    help="Plan a network: derived times with their formulas, scopes and addresses with their map, stripes, the planet.",
    help_epilogue=(
        "Start with:\n\n    isocast plan timing\n\n    isocast plan coverage --example\n\n"
        "    isocast plan stripes day.parquet\n\n    isocast plan world --example\n"
    ),
)

_DEFAULTS = TimingOptions()
_COVERAGE_DEFAULTS = CoverageOptions()
_STRIPE_DEFAULTS = StripeOptions()
_WORLD_DEFAULTS = WorldOptions()
_EXAMPLES = """Examples:

The paper's figures, τ_t = 2.775 s:

    isocast plan timing

A local network, release behind a majority:

    isocast plan timing --detect 0.005 --process 0.001 --retries 4 --gate majority --clock-error 0.0001

Two layers of ten, and who may ask when:

    isocast plan timing --layers 10,10 --secondary-detect 0.1 --nack-sets 4 --json

Three layers, each of which adds its recovery to the one release delay:

    isocast plan timing --layers 3 --receivers 5
"""


@app.command(help_epilogue=_EXAMPLES)
def timing(*, options: TimingOptions = _DEFAULTS, json: Flag = False) -> int:
    """Derive all times of a ring, with the formula of each in symbols and in numbers (§5.1).

    Times are in seconds. What is left out takes the paper's value.

    Parameters
    ----------
    json
        Print one JSON object instead of tables.
    """
    plan = make_plan(options)
    if json:
        show_json(plan.as_json())
        return 0
    show_table("Given", ("", "symbol", "value"), plan.given_rows())
    show_table("Derived", ("", "symbol", "formula", "in numbers", "value"), plan.derived_rows())
    title = "Sets that ask for what is missing of a token t that site 0 sent (§5.2)"
    show_table(title, ("set", "from", "sites"), plan.set_rows())
    line("A derived time is the shortest that the protocol allows, unless it was given.")
    if plan.timing.reveal_tokens:
        line(
            "Nobody, receivers included, can open a message before a majority holds it in its order. From then on to"
            " its release a receiver could, for the time above: reading early is bounded, not impossible."
        )
    return 0


_COVERAGE_EXAMPLES = """Examples:

A world to start from, its plan, and a map of it:

    isocast plan coverage --example > world.toml

    isocast plan coverage world.toml --svg map.svg --out plan.json

London fails; as little as possible changes, and no address is used again before it has drained:

    isocast plan coverage world.toml --from plan.json --without London --out next.json

A large world, against the hexagonal grid:

    isocast plan coverage world.toml --png land.png --rows 10
"""


@app.command(help_epilogue=_COVERAGE_EXAMPLES)
def coverage(world: Path | None = None, /, *, options: CoverageOptions = _COVERAGE_DEFAULTS) -> int:
    """Choose scopes so that every customer hears two sources, and addresses so that no two overlap (§4.3).

    Parameters
    ----------
    world
        TOML file with receivers, customers, paths and rules.
    """
    if options.example:
        line(EXAMPLE.rstrip())
        return 0
    from isocast.cli.plan_coverage import run_coverage, show, write_files

    run = run_coverage(world, options)
    with working("Drawing", quiet=options.json):
        write_files(run, options)
    show(run, options)
    return 1 if options.strict and run.report.coverage.short else 0


_STRIPE_EXAMPLES = """Examples:

A synthetic day, and stripes of 56 kb/s for it:

    isocast feed generate day.parquet

    isocast plan stripes day.parquet --rate 56k --out stripes.toml

Does the plan hold on another, busier day?

    isocast feed generate --trades 150000 busy.parquet

    isocast plan stripes --from stripes.toml --check busy.parquet

The next version, with few moves; sectors from a table with the columns symbol and sector:

    isocast plan stripes day.parquet busy.parquet --from stripes.toml --sectors sectors.csv --out next.toml
"""


@app.command(help_epilogue=_STRIPE_EXAMPLES)
def stripes(*history: Path, options: StripeOptions = _STRIPE_DEFAULTS) -> int:
    """Put related stocks together in narrow stripes, each under its bit-rate at its peak (§4.4).

    Exit code: 0 the plan holds, 1 it does not hold on the day of --check, 2 bad input.

    Parameters
    ----------
    history
        Days to plan from: feeds of any format that `isocast feed show` reads, directories of journals, or tables of
        text with the columns symbol, time and count.
    """
    from isocast.cli.plan_stripes import run_stripes, show_stripes, write_pictures, write_plan

    run = run_stripes(history, options)
    write_plan(run, options)
    with working("Drawing", quiet=options.json):
        write_pictures(run, options)
    show_stripes(run, options)
    return 0 if run.holds else 1


_WORLD_EXAMPLES = """Examples:

A planet to start from, its figures, and their picture:

    isocast plan world --example > planet.toml

    isocast plan world planet.toml --png planet.png

10,000 receivers and ten million customers; a minute or two on two cores:

    isocast plan world planet.toml --receivers 10000 --customers 10000000 --svg world.svg --figures

The same bits by Spark, on this machine or on a cluster:

    isocast plan world planet.toml --customers 1000000 --engine spark --master spark://HOST:7077
"""


@app.command(help_epilogue=_WORLD_EXAMPLES)
def world(world: Path | None = None, /, *, options: WorldOptions = _WORLD_DEFAULTS) -> int:
    """Deliver to a whole planet of receivers and customers, by arrays, beside the protocol's formulas (§3, §4, §5.2).

    Exit code: 0 fine, 1 with --strict if a figure is not what its formula says, 2 bad input.

    Parameters
    ----------
    world
        TOML file of a planet; --example prints one.
    """
    if options.example:
        line(WORLD_EXAMPLE.rstrip())
        return 0
    from isocast.cli.plan_world import run_world, show_world, write_pictures

    run = run_world(world, options)
    with working("Drawing", quiet=options.json):
        write_pictures(run, options)
    show_world(run, options)
    return 1 if options.strict and not run.sound else 0
