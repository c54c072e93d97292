"""`isocast sim show`: virtual time at the pace of the clock on the wall, frames on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from isocast.cli.live_parts import can_draw
from isocast.cli.render import line
from isocast.cli.sim_scene import Scene
from isocast.cli.sim_summary import next_steps, summary
from isocast.cli.sim_watch import watch
from isocast.simulation.scenario import Scenario, load_scenario, scenario_from_mapping
from isocast.simulation.timed import TimedRun
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND, to_seconds
from isocast.trials.demo.notes import Note, Tone

__all__ = ["beats", "show_scenario", "ten_cities"]

_TEN_CITIES = "ten-cities.toml"
"""Comes with the package; scenarios/ has it too."""

_FRAMES_PER_S = 10
_BEATS_PER_STEP = 12
"""Of a step of `TimedRun.run`, a quarter of a token period: some 20 ms at a token a second."""
_SETTLING_MAX_NS = 120 * SECOND
"""Long after everything should have come right; then the checkers say what has not."""
_STATUS_EVERY_NS = 5 * SECOND


def ten_cities() -> Scenario:
    """Ten cities: quiet, losses, a crash, a return."""
    text = files("isocast.cli").joinpath(_TEN_CITIES).read_text(encoding="utf-8")
    return scenario_from_mapping(tomllib.loads(text), _TEN_CITIES)


def show_scenario(file: Path | None, seed: int | None, speed: float | None, *, headless: bool) -> int:
    """Show a scenario to its end, or to Ctrl-C; then sum up. 1 if a checker found a violation."""
    scenario = ten_cities() if file is None else load_scenario(file)
    if scenario.protocol != "timed" or scenario.exchange is not None:
        rule = "only the timed protocol is shown; `isocast sim run` reports its figures"
        raise ConfigurationError(str(file), "protocol", rule)
    seed = scenario.seed if seed is None else seed
    scene, run = watch(scenario, seed)
    interrupted = False
    try:
        if headless or not can_draw():
            _lines(scene, run, speed)
        else:
            _frames(scene, run, speed or 1.0)
    except KeyboardInterrupt:
        interrupted = True
    for text in (*summary(scene, run, seed, interrupted=interrupted), *next_steps(file, seed)):
        line(text)
    return 1 if run.violations() else 0


def beats(scene: Scene, run: TimedRun) -> Iterator[None]:
    """Let the run live to its verdict, a beat at a time.

    Steps and their ends are those of `TimedRun.run`, so that the same seed gives the same trace, watched or not.
    """
    step = max(run.timing.token_period_ns // 4, 1)
    ends = [step * (beat + 1) // _BEATS_PER_STEP for beat in range(_BEATS_PER_STEP)]
    world = run.world
    settle_by: int | None = None
    while True:
        now = world.agenda.now
        if settle_by is None and run.arrivals.finished_at is not None and now >= run.faults.over_at:
            settle_by = now + _SETTLING_MAX_NS
        if settle_by is not None and (now >= settle_by or run.settled()):
            break
        begin = now
        for end in ends:
            run.advance(begin + end - world.agenda.now)
            scene.tick(world.agenda.now, world.network.model.loss)
            yield
    run.finish()


class _Pace:
    """Keeps virtual time from running ahead of the wall's."""

    def __init__(self, speed: float | None) -> None:
        self._speed = speed
        self._start = time.monotonic()

    def wait(self, now: int) -> None:
        if self._speed is None:
            return
        ahead = to_seconds(now) / self._speed - (time.monotonic() - self._start)
        if ahead > 0:
            time.sleep(ahead)


def _frames(scene: Scene, run: TimedRun, speed: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from isocast.cli.sim_view import frame

    console = Console()
    pace = _Pace(speed)
    drawn = 0.0
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for _ in beats(scene, run):
            if time.monotonic() - drawn >= 1 / _FRAMES_PER_S:
                drawn = time.monotonic()
                live.update(frame(scene, run, console.width, console.height), refresh=True)
            pace.wait(scene.now)


def _lines(scene: Scene, run: TimedRun, speed: float | None) -> None:
    """Without a terminal: what happens, and now and then how far it is. As fast as it goes, unless paced."""
    line(f"{scene.scenario.title}; seed {run.world.seed}")
    scene.on_note = _say
    pace = _Pace(speed)
    told = 0
    for _ in beats(scene, run):
        if scene.now - told >= _STATUS_EVERY_NS:
            told = scene.now
            line(_status(scene, run))
        pace.wait(scene.now)
    scene.on_note = None


def _say(note: Note) -> None:
    if note.tone in (Tone.TROUBLE, Tone.RING):
        line(f"{to_seconds(note.at):6.1f} s  {note.text}")
        sys.stdout.flush()


def _status(scene: Scene, run: TimedRun) -> str:
    token = scene.token.token_number if scene.token else 0
    return (
        f"{to_seconds(scene.now):6.1f} s  … token {token}, {scene.releases.messages:,} messages released,"
        f" {scene.lost:,} packets lost, {scene.regained:,} repaired, {len(run.suite.violations)} violations"
    )
