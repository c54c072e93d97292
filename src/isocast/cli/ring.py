"""`isocast ring`: who is on the ring and in U, where lines are, and changes of the ring while the market runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from isocast.cli.node_run import processes_of
from isocast.cli.options import Config, Flag, MarketFile
from isocast.cli.render import figure, line, note, show_json, show_table
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from isocast.runtime.market.model import Market, NodePlan
    from isocast.runtime.operate.orders import OperatorHand
    from isocast.runtime.operate.ring_change import RingChange, RingView
    from isocast.runtime.watch.line_gauges import LineGauges
    from isocast.runtime.watch.status import NodeStatus, StatusAnswer

__all__ = ["app", "line_report", "line_watchers", "ring_report", "show_lines", "show_ring"]


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

Stripe = Annotated[int | None, Parameter(name="--stripe", negative="")]
OrderFile = Annotated[Path | None, Parameter(name="--order", negative="")]
_HOURS_MAX = 168
"""Of an order: a week."""


@app.default
@app.command
def status(*, config: Config = None, stripe: Stripe = None, json: Flag = False) -> int:
    """Show the ring, U, and where every primary receiver and reformation server stands; of every stripe its own.

    Exit code 1 means that there is no ring at work, or that it lacks a site of U.

    Parameters
    ----------
    stripe
        Only the ring of this stripe.
    json
        Print one JSON object instead of a table; of several stripes one with a list of them.
    """
    from isocast.cli.ring import ring_report, show_ring
    from isocast.runtime.market.file import open_market

    market = open_market(config)
    if stripe is not None and stripe not in market.stripes:
        listed = ", ".join(map(str, market.stripes))
        raise ConfigurationError("command line", "--stripe", f"stripe {stripe} is not in ring.stripes ({listed})")
    reports = [ring_report(market.of_stripe(one)) for one in market.stripes if stripe in (None, one)]
    whole = all(report["whole"] for report in reports)
    if json:
        show_json(reports[0] if len(reports) == 1 else {"market": market.name, "whole": whole, "stripes": reports})
    else:
        for report in reports:
            show_ring(report, of_several=len(market.stripes) > 1)
    return 0 if whole else 1


@app.command
def drain(name: str, /, *, config: Config = None, stripe: Stripe = None, undo: Flag = False) -> int:
    """Take a primary receiver off the ring, so that it can be stopped or moved without anybody waiting for it.

    It stays in U, votes, follows and releases; only the token passes it by. A restart brings it back, and so does
    --undo.

    Parameters
    ----------
    name
        The receiver, in all its stripes; NAME.s1 in stripe 1 alone.
    stripe
        Only its process in this stripe.
    undo
        Let it come back.
    """

    async def work(change: RingChange, plan: NodePlan) -> str:
        view = await (change.undrain(plan) if undo else change.drain(plan))
        state = "is on the ring again" if undo else "is off the ring; stop it, or bring it back with --undo"
        return f"{plan.name} {state} (epoch {view.epoch}, {_names(change.market, view)})"

    return _on_receiver(config, name, stripe, work)


@app.command
def add(name: str, /, *, config: Config = None, stripe: Stripe = None, order: OrderFile = None) -> int:
    """Make a primary receiver a member of U, and let it onto the ring.

    First give it a table in the market's file with a number of its own, never used before; roll the file out
    (`isocast ring restart`); start it (`isocast node --name NAME --join`). It must have caught up: this waits for it.

    Parameters
    ----------
    name
        The receiver, in all its stripes; NAME.s1 in stripe 1 alone.
    stripe
        Only its process in this stripe.
    order
        A file with the operator's order, if it was signed elsewhere; if left out, it is signed here.
    """

    async def work(change: RingChange, plan: NodePlan) -> str:
        view = await change.add(plan)
        return f"{plan.name} is in U and on the ring (epoch {view.epoch}, {_names(change.market, view)})"

    return _on_receiver(config, name, stripe, work, order)


@app.command
def remove(name: str, /, *, config: MarketFile = None, stripe: Stripe = None, order: OrderFile = None) -> int:
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
    order
        A file with the operator's order, if it was signed elsewhere; if left out, it is signed here.
    """

    async def work(change: RingChange, plan: NodePlan) -> str:
        view = await change.remove(plan)
        members = ", ".join(change.market.name_of(site) for site in view.universe)
        return f"{plan.name} is out: U is {members} (epoch {view.epoch}). Stop it, and take it out of the file"

    return _on_receiver(config, name, stripe, work, order)


@app.command
def restart(*names: str, config: Config = None) -> int:
    """Start nodes anew, one after the other, each when the one before is back: for a new version or a new file.

    A primary receiver leaves the ring before and comes back after. Their supervisor starts the nodes again:
    `isocast up`, or systemd.

    Parameters
    ----------
    names
        Which nodes, in all their stripes, or NAME.s1 in stripe 1 alone; without names all that are up on this machine.
    """
    from isocast.runtime.market.file import open_market
    from isocast.runtime.operate.operator_door import OperatorError
    from isocast.runtime.operate.ring_change import RingChange, RollingRestart, restart_order

    market = open_market(config)
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
            wanted = await RollingRestart(RingChange(market), note).up(plans)
            if not wanted:
                raise OperatorError(f"no node answers below {market.data_directory}: run this where one is")
        await RollingRestart(RingChange(market), told).run(wanted)
        return f"{len(wanted)} {'node' if len(wanted) == 1 else 'nodes'} restarted"

    return _carry_out(work())


@app.command(help_epilogue="Example:\n\n    isocast ring force london paris --config market.toml --yes\n")
def force(*names: str, config: Config = None, stripe: Stripe = None, order: OrderFile = None, yes: Flag = False) -> int:
    """Let U be these receivers alone, because a majority of it will never come back.

    The only command that can make two histories: if those left out are alive somewhere, they may go on without these.
    Make sure that they are not. What only they held is lost. The change is recorded in the sequence and in every
    journal.

    Parameters
    ----------
    names
        The receivers that are left, all of them up: two or more.
    stripe
        Whose ring: must be given where there are several.
    order
        A file with the operator's order, if it was signed elsewhere; if left out, it is signed here.
    yes
        The others are gone for good, and I know what this means.
    """
    from isocast.runtime.market.file import open_market
    from isocast.runtime.operate.ring_change import RingChange

    market, plans = _survivors(open_market(config), names, stripe)
    if not yes:
        lost = ", ".join(market.name_of(site) for site in market.universe if site not in {p.node for p in plans})
        rule = f"add --yes if you are certain that {lost or 'the others'} will never run again under these numbers"
        raise ConfigurationError("command line", "--yes", rule)

    async def work() -> str:
        view = await RingChange(market, _waiting, hand=_hand(market, order)).force(plans)
        return f"U is {', '.join(plan.name for plan in plans)}, by force (epoch {view.epoch})"

    return _carry_out(work())


@app.command(
    name="order",
    help_epilogue="Example:\n\n    isocast ring order add dublin --out dublin.order --config market.toml --hours 2\n",
)
def order_(
    change: Literal["add", "remove", "force"],
    /,
    *names: str,
    out: Path,
    config: Config = None,
    stripe: Stripe = None,
    hours: float = 1.0,
) -> int:
    """Sign an order where the operator's key is, for a command on a machine of the market.

    The key stays here. The file is no secret: take it to the other machine, and give it to `isocast ring add`,
    `remove` or `force` with --order. It counts once, and no longer than it says.

    Parameters
    ----------
    change
        What is ordered: add or remove one receiver, or force U to be these.
    names
        The receiver; for force, all that are left.
    out
        The file to write.
    stripe
        In which stripe: must be given where there are several.
    hours
        How long it counts.
    """
    from isocast.runtime.market.file import open_market
    from isocast.runtime.operate.orders import BroughtOrder, OperatorHand, order_text
    from isocast.wire.orders import force_entry
    from isocast.wire.packets import ControlEntry, ControlKind

    if not 0 < hours <= _HOURS_MAX:
        raise ConfigurationError("command line", "--hours", f"is above 0 and at most {_HOURS_MAX}, not {hours:g}")
    market, plans = _survivors(open_market(config), names, stripe, least=2 if change == "force" else 1)
    hand, of_stripe = OperatorHand(market), market.stripes[0]
    if not hand.is_needed:
        raise ConfigurationError(market.file, "keys", "have no roster, and this market asks for no orders")
    if change == "force":
        entry = force_entry(0, sorted(plan.node for plan in plans))
    else:
        if len(plans) > 1:
            raise ConfigurationError("command line", "names", "name one receiver: U changes by one at a time")
        kind = ControlKind.ADD_SITE if change == "add" else ControlKind.REMOVE_SITE
        entry = ControlEntry(kind, plans[0].node, b"")
    signed = hand.sign(entry, of_stripe, lasts_ns=int(hours * 3_600 * SECOND))
    out.write_text(order_text(BroughtOrder(of_stripe, signed)), encoding="ascii")
    given = f"isocast ring {change} {' '.join(names)} --order {out}"
    line(f"{out}: an order to {change} {', '.join(plan.name for plan in plans)}, for {hours:g} h: {given}")
    return 0


def _survivors(
    market: Market, names: tuple[str, ...], stripe: int | None, least: int = 2
) -> tuple[Market, list[NodePlan]]:
    """One stripe's share of a market, and the receivers of these names there."""
    if stripe is None and len(market.stripes) > 1:
        raise ConfigurationError("command line", "--stripe", "is missing: each stripe has its own U")
    share = market.of_stripe(market.stripes[0] if stripe is None else stripe)
    plans = [plan for name in dict.fromkeys(names) for plan in _receivers(share, name, stripe)]
    if len(plans) < least:
        rule = "give two or more receivers that remain" if least > 1 else "name the receiver"
        raise ConfigurationError("command line", "names", rule)
    return share, plans


def _hand(market: Market, order: Path | None) -> OperatorHand:
    from isocast.runtime.operate.orders import OperatorHand, read_order

    return OperatorHand(market, None if order is None else read_order(order))


def _on_receiver(
    config: Path | None,
    name: str,
    stripe: int | None,
    work: Callable[[RingChange, NodePlan], Coroutine[Any, Any, str]],
    order: Path | None = None,
) -> int:
    """In each of its stripes, one after the other, until one does not do it."""
    from isocast.runtime.market.file import open_market
    from isocast.runtime.operate.ring_change import RingChange

    market = open_market(config)
    hand = _hand(market, order)
    for plan in _receivers(market, name, stripe):
        if _carry_out(work(RingChange(market.of_stripe(plan.stripe), _waiting, hand=hand), plan)):
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


# ---- What `isocast ring status` shows of the plan of lines: where each line is, how far it reaches, who hears how
# many.


def line_watchers(market: Market) -> tuple[NodePlan, ...]:
    """The nodes whose status pages tell of lines; none where the market plans no lines."""
    if not market.coverage.enabled:
        return ()
    from isocast.runtime.market.model import line_listeners, line_receivers

    return (*line_receivers(market), *[plan for plan in line_listeners(market) if plan.start])


def line_report(market: Market, answers: Mapping[str, StatusAnswer]) -> dict[str, Any] | None:
    """Everything, for programs; None where the market plans no lines."""
    if not market.coverage.enabled:
        return None
    known = {name: plan for name, answer in answers.items() if (plan := _plan_of(answer)) is not None}
    newest = max(known.values(), key=lambda plan: (plan.ballot, plan.version), default=None)
    watchers = line_watchers(market)
    return {
        "version": newest.version if newest is not None else None,
        "wanted": market.coverage.lines,
        "lines": [_receiver(plan, known.get(plan.name)) for plan in watchers if plan.role.is_receiver],
        "listeners": [_listener(plan, known.get(plan.name)) for plan in watchers if not plan.role.is_receiver],
        "draining": [
            {"group": rest.group, "receiver": rest.receiver, "free_in_s": rest.free_in_s}
            for rest in (newest.draining if newest is not None else ())
        ],
    }


def _plan_of(answer: StatusAnswer) -> LineGauges | None:
    return answer.status.gauges.line_plan if answer.status is not None else None


def _receiver(plan: NodePlan, known: LineGauges | None) -> dict[str, Any]:
    return {
        "name": plan.name,
        "version": known.version if known else None,
        "group": known.group if known else None,
        "radius_km": known.radius_km if known else None,
        "ttl": known.ttl if known else None,
    }


def _listener(plan: NodePlan, known: LineGauges | None) -> dict[str, Any]:
    return {
        "name": plan.name,
        "city": plan.place.name if plan.place else None,
        "version": known.version if known else None,
        "sources": list(known.sources) if known else [],
    }


def show_lines(report: dict[str, Any]) -> None:
    """For people."""
    if report["version"] is None:
        line("Lines: no plan yet; each receiver sends in the group of its number.")
        return
    line(f"Lines by plan {report['version']}; every customer needs {report['wanted']}.")
    rows = [
        (one["name"], one["group"] or _why_none(one), _km(one["radius_km"]), figure(one["ttl"]), one["version"] or "–")
        for one in report["lines"]
    ]
    show_table("", ("line of", "group", "scope", "TTL", "plan"), rows)
    heard = [
        (one["name"], one["city"] or "–", _sources(one, report["wanted"]), one["version"] or "–")
        for one in report["listeners"]
    ]
    show_table("", ("listener", "city", "hears by plan", "plan"), heard)
    if report["draining"]:
        rests = [(one["group"], one["receiver"], f"{one['free_in_s']:.0f} s") for one in report["draining"]]
        show_table("", ("group that rests", "left by", "free in"), rests)


def _why_none(one: dict[str, Any]) -> str:
    if one["version"] is None:
        return "–"
    return "silent, in reserve" if one["radius_km"] is not None else "not in the plan"


def _km(radius_km: float | None) -> str:
    return f"{radius_km:,.0f} km" if radius_km else "–"


def _sources(one: dict[str, Any], wanted: int) -> str:
    names = ", ".join(one["sources"]) or "–"
    return names if one["version"] is None or len(one["sources"]) >= wanted else f"{names} (too few)"


# ---- What `isocast ring status` shows: the ring in its order, U, and where everybody stands.


def ring_report(market: Market) -> dict[str, Any]:
    """Everything, for programs: asked of the status pages of those who are on rings and those who make them."""
    from isocast.runtime.market.model import NodeRole
    from isocast.runtime.watch.status import node_target, poll

    plans = [*market.by_role(NodeRole.PRIMARY_RECEIVER), *market.by_role(NodeRole.REFORMATION_SERVER)]
    asked = [plan for plan in dict.fromkeys((*plans, *line_watchers(market))) if plan.http_port]
    answers = shutdown.run(poll([node_target(market, plan) for plan in asked]))
    by_name = {plan.name: answer for plan, answer in zip(asked, answers, strict=True)}
    receivers = [plan for plan in plans if plan.role is NodeRole.PRIMARY_RECEIVER]
    best = _newest([by_name[plan.name].status for plan in receivers if plan.name in by_name])
    ring, universe = _of(best, "ring"), _of(best, "universe")
    whole = bool(ring) and set(ring) == set(universe) and best is not None and best.gauges.mode == "normal"
    return {
        "market": market.name,
        "stripe": market.stripes[0],
        "policy": market.policy.value,
        "epoch": best.gauges.epoch if best is not None else None,
        "ring": ring,
        "universe": universe,
        "majority": len(universe) // 2 + 1 if universe else None,
        "uncertified": bool(best is not None and best.gauges.uncertified),
        "whole": whole,
        "receivers": [_receiver_state(plan, by_name.get(plan.name), ring, universe) for plan in receivers],
        "servers": [
            _server(plan, by_name.get(plan.name)) for plan in plans if plan.role is NodeRole.REFORMATION_SERVER
        ],
        "lines": line_report(market, by_name),
    }


def _newest(statuses: list[NodeStatus | None]) -> NodeStatus | None:
    """The status of the node that knows the newest ring; of several, of the one that holds most."""
    known = [status for status in statuses if status is not None and status.gauges.ring]
    return max(known, key=lambda s: (s.gauges.epoch_number or 0, s.gauges.held_token or 0), default=None)


def _of(status: NodeStatus | None, name: str) -> list[str]:
    return list(getattr(status.gauges, name) or ()) if status is not None else []


def _receiver_state(
    plan: NodePlan, answer: StatusAnswer | None, ring: list[str], universe: list[str]
) -> dict[str, Any]:
    status = answer.status if answer is not None else None
    gauges = status.gauges if status is not None else None
    return {
        "name": plan.name,
        "number": plan.number,
        "city": plan.place.name if plan.place else None,
        "on_ring": plan.name in ring,
        "in_universe": plan.name in universe,
        "leaving": gauges.leaving if gauges else None,
        "mode": gauges.mode if gauges else None,
        "epoch": gauges.epoch if gauges else None,
        "held": gauges.held_token if gauges else None,
        "certified": gauges.certified_token if gauges else None,
        "released": gauges.released_token if gauges else None,
        "trouble": _trouble(answer),
    }


def _server(plan: NodePlan, answer: StatusAnswer | None) -> dict[str, Any]:
    status = answer.status if answer is not None else None
    gauges = status.gauges if status is not None else None
    return {
        "name": plan.name,
        "stage": gauges.mode if gauges else None,
        "epoch": gauges.epoch if gauges else None,
        "ballot": gauges.ballot_number if gauges else None,
        "trouble": _trouble(answer),
    }


def _trouble(answer: StatusAnswer | None) -> str | None:
    if answer is None:
        return "has no status page"
    if answer.status is None:
        return answer.trouble
    return "; ".join(answer.status.reasons) or None


def show_ring(report: dict[str, Any], *, of_several: bool = False) -> None:
    """For people."""
    ring, universe = report["ring"], report["universe"]
    whose = f"{report['market']}, stripe {report['stripe']}" if of_several else report["market"]
    if ring:
        mark = " (uncertified: started without a majority)" if report["uncertified"] else ""
        line(f"{whose}, epoch {report['epoch']}{mark}: {' → '.join(ring)} → {ring[0]}")
        line(f"U has {len(universe)}: {', '.join(universe)}; a majority is {report['majority']}.")
    else:
        line(f"{whose}: there is no ring yet")
    line()
    rows = [
        (
            one["name"],
            figure(one["number"]),
            one["city"] or "–",
            _place(one) if universe else "–",
            one["mode"] or "–",
            one["epoch"] or "–",
            figure(one["held"]),
            figure(one["certified"]),
            figure(one["released"]),
            one["trouble"] or "",
        )
        for one in report["receivers"]
    ]
    headers = ("receiver", "number", "city", "place", "mode", "epoch", "held", "certified", "released", "")
    show_table("", headers, rows)
    servers = [
        (one["name"], one["stage"] or "–", one["epoch"] or "–", figure(one["ballot"]), one["trouble"] or "")
        for one in report["servers"]
    ]
    show_table("", ("reformation server", "stage", "epoch", "ballot", ""), servers)
    if report["lines"] is not None:
        show_lines(report["lines"])


def _place(one: dict[str, Any]) -> str:
    """Where a receiver stands."""
    if one["on_ring"]:
        return "on the ring, leaving" if one["leaving"] else "on the ring"
    if one["in_universe"]:
        return "in U, drained" if one["leaving"] else "in U, off the ring"
    return "not in U"
