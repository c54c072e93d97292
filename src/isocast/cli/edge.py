"""`isocast edge`: narrow stripes at the edge of a market (§4.4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cyclopts import App

from isocast.cli.options import Config, Flag
from isocast.cli.render import figure, line, note, show_json, show_table
from isocast.runtime.operate import shutdown

__all__ = ["app"]


_HEADERS = (
    "receiver", "plan", "stripes", "sequence", "packets", "bytes", "proofs", "waiting", "conflated", "not carried",
    "not sent", "",
)  # fmt: skip
_REPAIRS = {
    "packets": "packets",
    "filled": "filled",
    "asked": "asked",
    "coalesced": "together",
    "repairs": "repairs",
    "dropped": "no room",
    "not_kept": "not kept",
    "strange": "strange",
    "filtered": "filtered",
    "forged": "forged",
    "unproven": "unproven",
    "conflicts": "conflicts",
    "requests": "requests",
    "answered": "answered",
    "refused": "refused",
}
"""Counts of a retransmit server, and the heads of their columns."""

app = App(
    name="edge",
    help="Narrow stripes: what receivers multicast, cut to the bit-rates of lines.",
    help_epilogue=(
        "Examples:\n\n    isocast edge status --config market.toml\n\n"
        "    isocast edge listen --config market.toml --name modem --rate 56k\n\n"
        "    isocast edge plan next.toml --config market.toml\n"
    ),
)
app.command("isocast.cli.edge_listen:listen", name="listen")


@app.command(show=False, help_epilogue="Example:\n\n    isocast edge send --config market.toml --name london\n")
def send(*, config: Config = None, name: str) -> int:
    """Send the narrow stripes of one receiver: the receiver starts this process itself.

    Parameters
    ----------
    name
        The receiver whose journal it follows.
    """
    from isocast.runtime.edge.narrow.service import run_edge
    from isocast.runtime.market.finding import find_market

    return run_edge(find_market(config), name)


@app.command
def status(*, config: Config = None, json: Flag = False) -> int:
    """Show what the receivers on this machine send: their plan, packets, what waits and what was conflated.

    A second table has what retransmit servers keep, repair for customers and answer to strangers. Exit code 1 means
    that a receiver is silent, or that they follow different plans.

    Parameters
    ----------
    json
        Print one JSON object instead of a table.
    """
    from isocast.runtime.edge.narrow.plan_change import PlanChange, edges_of
    from isocast.runtime.market.file import open_market

    market = open_market(config)
    change = PlanChange(market)
    views, repairs = shutdown.run(change.views()), shutdown.run(change.repairs())
    names = [plan.name for plan in edges_of(market)]
    sound = set(names) == set(views) and not any(view["blocked"] for view in views.values())
    sound &= len({view["digest"] for view in views.values()}) == 1
    if json:
        show_json({"sound": sound, "receivers": {name: views.get(name) for name in names}, "repairs": repairs})
        return 0 if sound else 1
    show_table("Narrow stripes", _HEADERS, [_row(name, views.get(name)) for name in names])
    if repairs:
        heads = ("server", *_REPAIRS.values())
        rows = [(name, *[figure(counts[key]) for key in _REPAIRS]) for name, counts in repairs.items()]
        show_table("Repairs", heads, rows)
    return 0 if sound else 1


def _row(name: str, view: dict[str, Any] | None) -> tuple[str, ...]:
    if view is None:
        return (name, *[""] * (len(_HEADERS) - 2), "not on this machine, or silent")
    return (
        name,
        figure(view["plan"]),
        figure(view["stripes"]),
        figure(view["next_sequence"] - 1),
        figure(view["packets"]),
        figure(view["ip_bytes"]),
        figure(view["proofs"]),
        figure(view["waiting"]),
        figure(sum(view["conflated"].values())),
        figure(view["not_carried"]),
        figure(view["not_sent"]),
        view["blocked"],
    )


@app.command
def plan(path: Path, /, *, config: Config = None) -> int:
    """Put a new stripe plan into force while the market runs.

    The plan is written to the directory of plans and announced in a token; every receiver follows it behind that token.
    On several machines, copy the file to the directory of plans of each first. Exit code: 0 it is in force, 1 the
    market does not follow (the message says why), 2 bad input.

    Parameters
    ----------
    path
        The plan, TOML or JSON, as `isocast plan stripes --from OLD --out NEW` writes it.
    """
    from isocast.runtime.edge.narrow.plan_change import PlanChange
    from isocast.runtime.market.file import open_market
    from isocast.runtime.market.routes import load_plan
    from isocast.runtime.operate.operator_door import OperatorError

    market, wanted = open_market(config), load_plan(path)
    change = PlanChange(market, told=lambda what: note(f"isocast: waiting for {what}"))
    try:
        views = shutdown.run(change.apply(wanted))
    except OperatorError as reason:
        note(f"isocast: {reason}")
        return 1
    names = ", ".join(views)
    line(f"Plan {wanted.version} is in force at {names}: {len(wanted.stripes)} narrow stripes.")
    return 0
