"""Runs one drill from an empty directory to its outcome: market, load, fault, recovery, journals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import time_ns

from isocast.ring.settings import StartPolicy
from isocast.runtime.market.model import NodeRole
from isocast.runtime.operate.nursery import Nursery
from isocast.runtime.operate.operator_door import OperatorError
from isocast.terms.errors import NodeFailedError
from isocast.terms.instants import SECOND
from isocast.trials.demo.place import Place
from isocast.trials.demo.staging import prepare
from isocast.trials.drill.cast import DrillSettings, market_text
from isocast.trials.drill.drills import Drill
from isocast.trials.drill.instants import (
    BALLOT,
    Reformation,
    detected_at,
    first_span_ns,
    outage_ns,
    release_instants,
    releases_by_part,
)
from isocast.trials.drill.load import Load, read_ledger
from isocast.trials.drill.report import Outcome, Picture
from isocast.trials.drill.safety import Journals, Safety, judge, read_journals
from isocast.trials.drill.staging import DrillStage
from isocast.trials.drill.trial import DrillError, Trial

__all__ = ["run_drill"]

_LEDGER = "ledger.jsonl"
_PARTS_MAX = 88
"""Columns of the picture: as many as there are tokens, if they fit."""
_BEFORE_NS = SECOND
_BOUND = "4δ_N+grace+τ_t+2ε"


async def run_drill(
    drill: Drill,
    directory: Path,
    place: Place,
    settings: DrillSettings,
    nursery: Nursery,
    note: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Everything happens below the directory; no process is left when it returns."""
    market = prepare(directory, market_text(place, settings, drill.sites))
    stage = DrillStage(market, lambda _: None, nursery)
    why = ""
    note("starts the market")
    async with stage:
        await stage.all_ready()
        async with Load(market, directory / _LEDGER) as load:
            trial = Trial(stage, load, settings, note)
            try:
                await _play(drill, trial)
            except (DrillError, NodeFailedError, OperatorError) as reason:
                why = str(reason)
            trial.ended_at = time_ns()
            if not why:
                try:
                    await load.stop()
                    await trial.settled()
                except DrillError as reason:
                    why = str(reason)
    note("reads the journals")
    trial.book.read()
    journals = read_journals(market)
    promised = read_ledger(directory / _LEDGER)
    delay_ns, whole_at = market.timing.release_delay_ns, trial.whole_at or None
    safety = judge(journals, promised, delay_ns, trial.absent, whole_at)
    if not why and safety.unserved:
        why = f"{safety.unserved} messages that were taken when the ring was whole again are not in the sequence"
    return _outcome(drill, trial, journals, safety, why)


async def _play(drill: Drill, trial: Trial) -> None:
    await trial.is_whole()
    await trial.calm()
    trial.note(drill.what)
    await drill.strike(trial)
    await trial.is_whole()
    trial.whole_at = time_ns()
    await trial.calm()


def _outcome(drill: Drill, trial: Trial, journals: Journals, safety: Safety, why: str) -> Outcome:
    market, fault_at = trial.market, trial.fault_at
    rings = trial.rings() if fault_at else []
    detected = trial.detected_at or (detected_at(trial.book, fault_at) if fault_at else None)
    healthy = [record for name, record in journals.sites.items() if name not in trial.victims]
    # Where nobody is spared, what counts is whether anybody released.
    watched = [[record] for record in healthy] or [list(journals.sites.values())]
    start = fault_at - _BEFORE_NS if fault_at else trial.ended_at - _BEFORE_NS
    return Outcome(
        drill=drill.name,
        recovered=not why,
        is_excused=trial.settings.policy is StartPolicy.AVAILABILITY,
        safety=safety,
        messages=max([record.messages for record in journals.sites.values()], default=0),
        victims=len(trial.victims),
        detected_ns=None if detected is None or drill.is_planned else detected - fault_at,
        outage_ns=outage_ns([release_instants(records) for records in watched], fault_at, trial.ended_at, market.timing)
        if fault_at
        else None,
        ballot_to_token_ns=_ballot_to_token(drill, trial, rings),
        bound_ns=market.timing.reformation_ns + drill.extra_ns(market.timing),
        bound=f"{_BOUND}+{drill.extra}" if drill.extra else _BOUND,
        ballots_ns=[ring.span_ns for ring in rings],
        why="; ".join([text for text in (why, _told(safety, journals)) if text]),
        picture=_picture(trial, journals, start),
    )


def _picture(trial: Trial, journals: Journals, start: int) -> Picture:
    """Parts of a token period, or several, with the releases before the fault in the middle of theirs."""
    period_ns, span_ns = trial.market.timing.token_period_ns, trial.ended_at - start
    part_ns = period_ns * max(-(-span_ns // (period_ns * _PARTS_MAX)), 1)
    before = [instant for instant in release_instants(journals.sites.values()) if instant < trial.fault_at]
    if before:
        start -= (start - before[-1] - part_ns // 2) % part_ns
    customers = [plan.name for plan in trial.market.by_role(NodeRole.CUSTOMER) if plan.name in journals.followers]
    shown = {**journals.sites, **{name: journals.followers[name] for name in customers}}
    rows = releases_by_part(shown, start, part_ns, max(span_ns // part_ns, 1))
    return Picture(start, part_ns, rows, trial.fault_at, trial.whole_at)


def _ballot_to_token(drill: Drill, trial: Trial, rings: list[Reformation]) -> int | None:
    """Of the first ring after the fault; of a drill that plans its ballots the slowest."""
    if drill.is_planned:
        return max([ring.span_ns for ring in rings], default=None)
    ballots = trial.book.since(trial.fault_at, BALLOT) if drill.from_first_ballot else []
    return first_span_ns(rings, trial.returned_at, [line.at for line in ballots])


def _told(safety: Safety, journals: Journals) -> str:
    """What is worth a word even if nothing is wrong."""
    wrong = [
        f"{count} {what}"
        for count, what in (
            (safety.lost, "lost"),
            (safety.repeated, "repeated"),
            (safety.divergent, "divergent"),
            (safety.gaps, "missing in a journal"),
            (safety.early, "out before their instant"),
        )
        if count
    ]
    found = [f"{name}: damage found, and nothing behind it believed" for name in journals.damaged]
    return "; ".join([*wrong, *found])
