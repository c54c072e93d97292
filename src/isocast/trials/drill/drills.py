"""The faults, in the order in which they are run: what each does to a market, and how it ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import time_ns

from isocast.runtime.disk.journal_segments import segment_files
from isocast.runtime.operate.ring_change import Change
from isocast.runtime.operate.rolling_restart import RollingRestart, restart_order
from isocast.terms.instants import SECOND
from isocast.terms.timing import Timing
from isocast.trials.drill.cast import HERE, SITES, THERE
from isocast.trials.drill.staging import flip_bit
from isocast.trials.drill.trial import Trial
from isocast.trials.evidence import journal_of

__all__ = ["DRILLS", "Drill"]

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
    change = Change(trial.market, trial.note)
    await RollingRestart(change, trial.note).run(restart_order(trial.market))


def _retries(timing: Timing) -> int:
    """The other server stands back for two reformations and a part of δ_N, then holds a ballot of its own."""
    return 2 * timing.reformation_ns + timing.detect_ns


def _invitation(timing: Timing) -> int:
    """Whoever returns waits for the next invitation."""
    return timing.retry_ns


DRILLS: tuple[Drill, ...] = (
    Drill("token-site", "kill the token site just after it acknowledged", _token_site),
    Drill("token-site-unheard", "kill it when its token is on its disk and not yet on the wire", _token_site_unheard),
    Drill("partition", "part three sites from two, with half of everything else on each side", _partition),
    Drill(
        "even-split",
        "part two sites from two: nobody has a majority until it heals",
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
