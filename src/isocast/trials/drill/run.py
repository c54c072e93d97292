"""The drills, and how one is run from an empty directory to its outcome: market, load, fault, recovery, journals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import time_ns

from isocast.checks.journals import JournalWalk
from isocast.ring.settings import StartPolicy
from isocast.runtime.disk.journal_segments import segment_files
from isocast.runtime.market.model import NodeRole
from isocast.runtime.operate.nursery import Nursery
from isocast.runtime.operate.operator_door import OperatorError
from isocast.runtime.operate.ring_change import RingChange, RollingRestart, restart_order
from isocast.terms.errors import NodeFailedError
from isocast.terms.instants import SECOND
from isocast.terms.quantities import counted
from isocast.terms.timing import Timing
from isocast.trials.demo.cast import DemoNetwork
from isocast.trials.demo.staging import prepare
from isocast.trials.drill.cast import HERE, SITES, THERE, DrillSettings, market_text
from isocast.trials.drill.safety import Outcome, Picture, Safety, judge
from isocast.trials.drill.staging import DrillStage, flip_bit
from isocast.trials.drill.trial import (
    BALLOT,
    DrillError,
    DrillLoad,
    Reformation,
    Trial,
    detected_at,
    first_span_ns,
    outage_ns,
    read_ledger,
    release_instants,
    releases_by_part,
)
from isocast.trials.evidence import Journals, journal_of, read_journals

__all__ = ["DRILLS", "Drill", "run_drill"]


# ---- The faults, in the order in which they are run: what each does to a market, and how it ends.


_PARTED_S = 4.0
_PAUSED_S = 10.0
_STEP_NS = 5 * SECOND


@dataclass(frozen=True, slots=True)
class Drill:
    """One fault."""

    name: str
    what: str
    """In one line."""
    strike: Callable[[Trial], Awaitable[None]]
    """From the fault to its end."""
    sites: tuple[str, ...] = SITES
    extra_ns: Callable[[Timing], int] = lambda _: 0
    """What is added to the bound from ballot to first new token."""
    extra: str = ""
    """The same in symbols."""
    from_first_ballot: bool = False
    """Whether the ballots of a server that died count."""
    is_planned: bool = False
    """Whether nobody is to suspect anybody, and every ballot counts."""


# Sites --------------------------------------------------------------------------------------------


async def _kill_token_site(trial: Trial, *, unheard: bool) -> None:
    """Told to die of its next token: no signal from outside is ever as punctual."""
    victim = "tokyo"
    trial.stage.hold(victim)
    await trial.do(victim, "crash-after", packet="token", unheard=unheard)
    trial.strike(victim)
    await trial.until(lambda: trial.stage.children[victim].pid is None, f"{victim} dies of its token")
    last = trial.book.since(trial.fault_at, "ends by a drill")
    trial.fault_at = last[0].at if last else trial.fault_at
    await trial.goes_on_without(victim)
    await trial.calm()
    trial.bring_back(victim)


async def _token_site(trial: Trial) -> None:
    await _kill_token_site(trial, unheard=False)


async def _token_site_unheard(trial: Trial) -> None:
    await _kill_token_site(trial, unheard=True)


async def _majority(trial: Trial) -> None:
    victims = ("frankfurt", "chicago", "tokyo")
    trial.strike(*victims)
    trial.kill(*victims)
    await trial.pass_time(trial.lasts_s(_PARTED_S))
    trial.bring_back(*victims)
    await trial.returns(*victims)


async def _pause(trial: Trial) -> None:
    trial.strike("sydney")
    trial.signal("sydney", signal.SIGSTOP)
    await asyncio.gather(trial.goes_on_without("sydney"), trial.pass_time(trial.lasts_s(_PAUSED_S)))
    trial.signal("sydney", signal.SIGCONT)


async def _clock(trial: Trial) -> None:
    trial.strike("tokyo")
    await trial.do("tokyo", "step-clock", ns=_STEP_NS)
    await trial.says("tokyo", "clock")
    await trial.goes_on_without("tokyo")
    await trial.pass_time(trial.lasts_s(2.0))
    await trial.do("tokyo", "step-clock", ns=-_STEP_NS)


# The network --------------------------------------------------------------------------------------


async def _partition(trial: Trial) -> None:
    trial.strike(*THERE)
    await asyncio.gather(trial.deafen(HERE, THERE), trial.deafen(THERE, HERE))
    trial.fault_at = time_ns()
    gone = [name for name in THERE if name in trial.sites]
    await asyncio.gather(trial.goes_on_without(*gone), trial.pass_time(trial.lasts_s(_PARTED_S)))
    await trial.heal()


async def _even_split(trial: Trial) -> None:
    trial.strike(*trial.sites)
    await asyncio.gather(trial.deafen(HERE, THERE), trial.deafen(THERE, HERE))
    await trial.pass_time(trial.lasts_s(_PARTED_S))
    await trial.heal()
    trial.returned_at = time_ns()


async def _one_way(trial: Trial) -> None:
    pair = {"frankfurt", "tokyo"}
    trial.strike(*pair)
    await trial.deafen(["frankfurt"], ["tokyo"])
    await trial.goes_on(lambda members: not pair <= set(members), "a ring without one of the two")
    await trial.pass_time(trial.lasts_s(2.0))
    await trial.heal()


# Servers, disks, everything -----------------------------------------------------------------------


async def _server(trial: Trial) -> None:
    trial.stage.hold("xray")
    await trial.do("xray", "crash-after", packet="invite")
    trial.strike("sydney", "xray")
    trial.kill("sydney")
    await trial.until(lambda: trial.stage.children["xray"].pid is None, "xray dies of its invitation")
    await trial.goes_on_without("sydney")
    await trial.calm()
    trial.bring_back("sydney", "xray")


async def _disk(trial: Trial) -> None:
    victim = "chicago"
    length = max([file.path.stat().st_size for file in segment_files(journal_of(trial.market, victim))])
    trial.strike(victim)
    trial.stage.fill_disk(victim, length)
    await trial.says(victim, "disk-full")
    await trial.goes_on_without(victim)
    await trial.pass_time(trial.lasts_s(2.0))
    trial.stage.make_room(victim)


async def _bit(trial: Trial) -> None:
    victim = "frankfurt"
    newest = segment_files(journal_of(trial.market, victim))[-1].path
    flip_bit(newest, newest.stat().st_size // 2)
    trial.strike(victim)
    trial.signal(victim, signal.SIGKILL)
    await trial.refused(victim)
    trial.detected_at = time_ns()
    await trial.goes_on_without(victim)
    # As an operator would: promises are in the log, and the journal is filled again from those who have it.
    journal_of(trial.market, victim).rename(trial.market.directory_of(victim) / "journal.damaged")
    trial.stage.start_again(victim)


async def _restart(trial: Trial) -> None:
    everybody = tuple(trial.stage.children)
    trial.strike(*everybody)
    for name in everybody:
        trial.signal(name, signal.SIGKILL)
    await trial.returns(*everybody)


async def _rolling(trial: Trial) -> None:
    """As `isocast ring restart` does it: a site leaves the ring before it ends, and the next one waits for it."""
    trial.strike(*trial.stage.children)
    change = RingChange(trial.market, trial.note)
    await RollingRestart(change, trial.note).run(restart_order(trial.market))


def _retries(timing: Timing) -> int:
    """The other server stands back for two reformations and a part of δ_N, then holds a ballot of its own."""
    return 2 * timing.reformation_ns + timing.detect_ns


def _invitation(timing: Timing) -> int:
    """How long a site that returns waits for the next invitation."""
    return timing.retry_ns


DRILLS: tuple[Drill, ...] = (
    Drill("token-site", "kill the token site just after it acknowledged", _token_site),
    Drill("token-site-unheard", "kill it when its token is on its disk and not yet on the wire", _token_site_unheard),
    Drill("partition", "part three sites from two, with half of everything else on each side", _partition),
    Drill(
        "even-split",
        "separate two sites from two: neither side has a majority until the partition heals",
        _even_split,
        sites=("london", "frankfurt", "tokyo", "sydney"),
        extra_ns=_invitation,
        extra="τ_r",
    ),
    Drill("one-way", "Frankfurt hears nothing of Tokyo, Tokyo everything of Frankfurt", _one_way),
    Drill(
        "server",
        "kill a site, and the reformation server once it has sent its invitation",
        _server,
        extra_ns=_retries,
        extra="2·(4δ_N+grace+τ_t+2ε)+δ_N",
        from_first_ballot=True,
    ),
    Drill("majority", "kill three of five sites and bring them back", _majority, extra_ns=_invitation, extra="τ_r"),
    Drill("clock", "set a site's clock forward by five seconds, and back", _clock),
    Drill("disk", "fill a site's disk, and make room again", _disk),
    Drill("pause", "stop a site's process for ten seconds", _pause),
    Drill("bit", "flip a bit in a site's journal, restart it, and give it a new journal", _bit),
    Drill("restart", "kill every process at once", _restart, extra_ns=_invitation, extra="τ_r"),
    Drill("rolling", "restart every process, one after the other", _rolling, is_planned=True),
)


_LEDGER = "ledger.jsonl"
_PARTS_MAX = 88
"""Columns of the picture: as many as there are tokens, if they fit."""
_BEFORE_NS = SECOND
_BOUND = "4δ_N+grace+τ_t+2ε"


async def run_drill(
    drill: Drill,
    directory: Path,
    place: DemoNetwork,
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
        async with DrillLoad(market, directory / _LEDGER) as load:
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
    journals = read_journals(market, lambda: JournalWalk(1))
    promised = read_ledger(directory / _LEDGER)
    delay_ns, whole_at = market.timing.release_delay_ns, trial.whole_at or None
    safety = judge(journals, promised, delay_ns, trial.absent, whole_at)
    if not why and safety.unserved:
        why = f"not in the sequence: {counted(safety.unserved, 'message')} taken when the ring was whole again"
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
            (safety.lost, "lost (L1)"),
            (safety.repeated, "repeated (S2)"),
            (safety.divergent, "divergent (S1)"),
            (safety.gaps, "missing in a journal (S2)"),
            (safety.early, "out before their instant (S12)"),
        )
        if count
    ]
    found = [f"{name}: damage found; the rest of the journal was not trusted" for name in journals.damaged]
    return "; ".join([*wrong, *found])
