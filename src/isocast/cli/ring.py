"""`isocast ring`: who is on the ring and in U, and changes of both while the market runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from isocast.cli.node import processes_of
from isocast.cli.render import line, note, show_json
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from isocast.runtime.market.model import Market, NodePlan
    from isocast.runtime.operate.ring_change import Change, RingView

__all__ = ["app"]

_EXAMPLES = """Examples:

    isocast ring --config market.toml

    isocast ring status --config market.toml --json

    isocast ring drain london --config market.toml

    isocast ring drain london --undo --config market.toml

    isocast ring restart --config market.toml

    isocast ring add dublin --config market.toml

    isocast ring remove london --config market.toml

`status` is also what happens without a subcommand. It asks the nodes' status pages, wherever they are. The others use
the operator's doors, Unix sockets in the nodes' directories: run them on a machine of the market, as the user that runs
the nodes. Exit code: 0 it is so, 1 the market does not do it (the message says why), 2 bad input.
"""

app = App(name="ring", help="Who is on the ring, and planned changes of a running market.", help_epilogue=_EXAMPLES)

Config = Annotated[Path, Parameter(name=["--config", "-c"])]
Stripe = Annotated[int | None, Parameter(name="--stripe", negative="")]
AsJson = Annotated[bool, Parameter(name="--json", negative="")]


@app.default
@app.command
def status(*, config: Config, stripe: Stripe = None, json: AsJson = False) -> int:
    """Show the ring, U, and where every primary receiver and reformation server stands; of every stripe its own.

    Exit code 1 means that there is no ring at work, or that it lacks a site of U.

    Parameters
    ----------
    config
        The market's file.
    stripe
        Only the ring of this stripe.
    json
        Print one JSON object instead of a table; of several stripes one with a list of them.
    """
    from isocast.cli.ring_view import ring_report, show_ring
    from isocast.runtime.market.file import load_market

    market = load_market(config)
    if stripe is not None and stripe not in market.stripes:
        listed = ", ".join(map(str, market.stripes))
        raise ConfigurationError("command line", "--stripe", f"is none of ring.stripes: {listed}, not {stripe}")
    reports = [ring_report(market.of_stripe(one)) for one in market.stripes if stripe in (None, one)]
    whole = all(report["whole"] for report in reports)
    if json:
        show_json(reports[0] if len(reports) == 1 else {"market": market.name, "whole": whole, "stripes": reports})
    else:
        for report in reports:
            show_ring(report, of_several=len(market.stripes) > 1)
    return 0 if whole else 1


@app.command
def drain(
    name: str, /, *, config: Config, stripe: Stripe = None, undo: Annotated[bool, Parameter(negative="")] = False
) -> int:
    """Take a primary receiver off the ring, so that it can be stopped or moved without anybody waiting for it.

    It stays in U, votes, follows and releases; only the token passes it by. A restart brings it back, and so does
    --undo.

    Parameters
    ----------
    name
        The receiver, in all its stripes; NAME.s1 in stripe 1 alone.
    config
        The market's file.
    stripe
        Only its process in this stripe.
    undo
        Let it come back.
    """

    async def work(change: Change, plan: NodePlan) -> str:
        view = await (change.undrain(plan) if undo else change.drain(plan))
        state = "is on the ring again" if undo else "is off the ring; stop it, or bring it back with --undo"
        return f"{plan.name} {state} (epoch {view.epoch}, {_names(change.market, view)})"

    return _on_receiver(config, name, stripe, work)


@app.command
def add(name: str, /, *, config: Config, stripe: Stripe = None) -> int:
    """Make a primary receiver a member of U, and let it onto the ring.

    First give it a table in the market's file with a number of its own, never used before; roll the file out
    (`isocast ring restart`); start it (`isocast node --name NAME --join`). It must have caught up: this waits for it.

    Parameters
    ----------
    name
        The receiver, in all its stripes; NAME.s1 in stripe 1 alone.
    config
        The market's file.
    stripe
        Only its process in this stripe.
    """

    async def work(change: Change, plan: NodePlan) -> str:
        view = await change.add(plan)
        return f"{plan.name} is in U and on the ring (epoch {view.epoch}, {_names(change.market, view)})"

    return _on_receiver(config, name, stripe, work)


@app.command
def remove(name: str, /, *, config: Config, stripe: Stripe = None) -> int:
    """Take a primary receiver out of U, alive or dead: its vote no longer counts, and nobody waits for it.

    One that lost its disk has forgotten what it promised: remove it, give its table another number, start it with
    --join, and add it.

    Parameters
    ----------
    name
        The receiver, in all its stripes; NAME.s1 in stripe 1 alone.
    config
        The market's file, which still has it.
    stripe
        Only its process in this stripe.
    """

    async def work(change: Change, plan: NodePlan) -> str:
        view = await change.remove(plan)
        members = ", ".join(change.market.name_of(site) for site in view.universe)
        return f"{plan.name} is out: U is {members} (epoch {view.epoch}). Stop it, and take it out of the file"

    return _on_receiver(config, name, stripe, work)


@app.command
def restart(*names: str, config: Config) -> int:
    """Start nodes anew, one after the other, each when the one before is back: for a new version or a new file.

    A primary receiver leaves the ring before and comes back after. Whoever supervises the nodes starts them again:
    `isocast up`, or systemd.

    Parameters
    ----------
    names
        Which nodes, in all their stripes, or NAME.s1 in stripe 1 alone; without names all that are up on this machine.
    config
        The market's file.
    """
    from isocast.runtime.market.file import load_market
    from isocast.runtime.operate.operator_door import OperatorError
    from isocast.runtime.operate.ring_change import Change
    from isocast.runtime.operate.rolling_restart import RollingRestart, restart_order

    market = load_market(config)
    for name in names:
        processes_of(market, name)
    plans = restart_order(market, names)

    async def work() -> str:
        done = 0
        wanted = plans

        def told(text: str) -> None:
            nonlocal done
            done += text.endswith("is back")
            line(f"{done:>3}/{len(wanted)}  {text}")
            sys.stdout.flush()

        if not names:  # A table whose node has yet to join is in the file before the node is up.
            wanted = await RollingRestart(Change(market), note).up(plans)
            if not wanted:
                raise OperatorError(f"no node answers below {market.data_directory}: run this where one is")
        await RollingRestart(Change(market), told).run(wanted)
        return f"{len(wanted)} {'node' if len(wanted) == 1 else 'nodes'} restarted"

    return _carry_out(work())


@app.command
def force(
    *names: str, config: Config, stripe: Stripe = None, yes: Annotated[bool, Parameter(negative="")] = False
) -> int:
    """Let U be these receivers alone, because a majority of it will never come back.

    The only command that can make two histories: if those left out are alive somewhere, they may go on without these.
    Make sure that they are not. What only they held is lost. The change is recorded in the sequence and in every
    journal.

    Parameters
    ----------
    names
        The receivers that are left, all of them up: two or more.
    config
        The market's file.
    stripe
        Whose ring: must be given where there are several.
    yes
        The others are gone for good, and I know what this means.
    """
    from isocast.runtime.market.file import load_market
    from isocast.runtime.operate.ring_change import Change

    market = load_market(config)
    if stripe is None and len(market.stripes) > 1:
        raise ConfigurationError("command line", "--stripe", "each stripe has a U of its own: say of which")
    market = market.of_stripe(market.stripes[0] if stripe is None else stripe)
    plans = [plan for name in dict.fromkeys(names) for plan in _receivers(market, name, stripe)]
    if len(plans) < 2:  # noqa: PLR2004  A ring has at least two.
        raise ConfigurationError("command line", "names", "name the receivers that are left: two or more")
    if not yes:
        lost = ", ".join(market.name_of(site) for site in market.universe if site not in {p.node for p in plans})
        rule = f"add --yes if you are certain that {lost or 'the others'} will never run again under these numbers"
        raise ConfigurationError("command line", "--yes", rule)

    async def work() -> str:
        view = await Change(market, _waiting).force(plans)
        return f"U is {', '.join(plan.name for plan in plans)}, by force (epoch {view.epoch})"

    return _carry_out(work())


def _on_receiver(
    config: Path, name: str, stripe: int | None, work: Callable[[Change, NodePlan], Coroutine[Any, Any, str]]
) -> int:
    """In each of its stripes, one after the other, until one does not do it."""
    from isocast.runtime.market.file import load_market
    from isocast.runtime.operate.ring_change import Change

    market = load_market(config)
    for plan in _receivers(market, name, stripe):
        if _carry_out(work(Change(market.of_stripe(plan.stripe), _waiting), plan)):
            return 1
    return 0


def _carry_out(work: Coroutine[Any, Any, str]) -> int:
    """Say what came of it: exit code 1, and one line, where the market does not do it."""
    from isocast.runtime.operate.operator_door import OperatorError

    try:
        line(shutdown.run(work))
    except OperatorError as reason:
        note(f"isocast: {reason}")
        return 1
    return 0


def _waiting(what: str) -> None:
    note(f"waiting for {what}")


def _receivers(market: Market, name: str, stripe: int | None) -> tuple[NodePlan, ...]:
    from isocast.runtime.market.model import NodeRole

    plans = processes_of(market, name, stripe)
    if plans[0].role is not NodeRole.PRIMARY_RECEIVER:
        raise ConfigurationError(market.file, f"nodes.{name}.role", "only primary receivers are on the ring and in U")
    return plans


def _names(market: Market, view: RingView) -> str:
    return " → ".join(market.name_of(site) for site in view.ring)
