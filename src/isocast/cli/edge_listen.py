"""`isocast edge listen`: the stripes that a line can take, as they come."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from isocast.cli.options import Config, Count, Flag, Seconds, rate_of
from isocast.cli.render import figure, line, note
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.runtime.edge.narrow.choosing import Chosen
    from isocast.runtime.edge.narrow.listener import StripeBatch, StripeListener
    from isocast.runtime.market.model import Market
    from isocast.striping.plan import StripePlan

__all__ = ["listen"]

_EXAMPLES = """Examples:

A modem that follows one stripe and wants what is newest:

    isocast edge listen --config market.toml --name modem --rate 56k

Some stocks, all of their trades, whatever was lost repaired:

    isocast edge listen --config market.toml --name desk --rate 1.5M --symbols IBM,VOD --keep complete

Two lines, so that a packet must be lost twice; they take twice the rate:

    isocast edge listen --config market.toml --name desk --lines new-york,london --json > trades.jsonl

A package, where stripes are sold:

    isocast edge listen --config market.toml --name modem --rate 56k --package desk.package

`--keep complete` needs the key of repairs, keys/repair.key (or a package), and a retransmit server in the customer's
table. Exit code: 0 it was stopped, 1 messages were lost, 2 bad input, 3 the machine refused an address or a port.
"""


listen = App(name="listen", help_epilogue=_EXAMPLES)


@listen.default
def _listen(  # noqa: PLR0913 - who, what, how much and for how long
    *,
    config: Config = None,
    name: Annotated[str, Parameter(name=["--name", "-n", "--as"])],
    rate: str | None = None,
    symbols: str | None = None,
    keep: Literal["latest", "complete"] = "latest",
    from_: Annotated[Literal["now", "beginning"], Parameter(name="--from")] = "now",
    lines: str | None = None,
    plan: Path | None = None,
    count: Count | None = None,
    seconds: Seconds | None = None,
    package: Path | None = None,
    secret_file: Path | None = None,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Hear the narrow stripes that fit a line, and print their events.

    Parameters
    ----------
    name
        The customer of the file to be: its address is where groups are joined.
    rate
        Bit-rate of the line, IP headers included: 56k, 1.5M. Left out, every stripe is heard.
    symbols
        Only the stripes of these, separated by commas.
    keep
        latest: never ask, go on with what is newest. complete: ask for everything that was lost.
    from_
        now: with what comes. beginning: with the first message of the day, which takes the repairs' rate; for complete.
    lines
        The receivers to hear, separated by commas; the first of the customer's own if left out.
    plan
        The stripe plan in force; the newest of the market's plans if left out.
    count
        End after so many events.
    seconds
        End after so long.
    package
        What the box office gave, of a market that sells its stripes; if left out, NAME.package in the keys directory.
        Its secret is asked for.
    secret_file
        Read the package's secret from this file, of mode 0600, instead of asking.
    json
        Print a line of JSON for each event, and the counts as the last.
    quiet
        Print no events, only the counts at the end.
    """
    from isocast.cli.gateway import customer_named
    from isocast.cli.listen_options import package_given
    from isocast.runtime.edge.narrow.choosing import choose, describe
    from isocast.runtime.edge.narrow.listener import StripeListener
    from isocast.runtime.market.file import open_market

    market = open_market(config)
    seat = customer_named(market, name)
    chosen_rate = None if rate is None else rate_of(rate)

    def chosen_by(wanted: StripePlan) -> Chosen:
        return choose(
            market, seat, wanted, rate=chosen_rate, symbols=_words(symbols), lines=_words(lines),
            complete=keep == "complete", from_first=from_ == "beginning",
        )  # fmt: skip

    if from_ == "beginning" and keep != "complete":
        rule = "beginning needs --keep complete: with --keep latest no message is requested again"
        raise ConfigurationError("command line", "--from", rule)
    if package is not None and not market.seals_stripes:
        rule = f"is for stripes that are sold, and those of {market.name} are in the clear: leave it out"
        raise ConfigurationError("command line", "--package", rule)
    chosen = chosen_by(_plan(market, plan))
    if chosen.unnamed:
        note(f"isocast: no stripe lists {', '.join(chosen.unnamed)}: listening on a spare stripe")
    bought = package_given(market, package, secret_file)
    note(f"isocast: {name} hears {describe(chosen, chosen_rate)}; Ctrl-C ends it")

    async def work() -> StripeListener:
        listener = StripeListener(market, seat, chosen, subscription=bought, told=lambda text: note(f"isocast: {text}"))
        listener.plan_changed = lambda version: _follow(listener, market, version, chosen_by)
        await _until_stopped(listener, count, seconds, as_json=json, quiet=quiet)
        return listener

    listener = shutdown.run(work())
    _report(listener, market, as_json=json)
    return 1 if listener.counts.total.lost or listener.counts.unread else 0


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _plan(market: Market, path: Path | None) -> StripePlan:
    from isocast.runtime.edge.narrow.places import edge_of
    from isocast.runtime.edge.narrow.plans import PlanFolder
    from isocast.runtime.market.routes import load_plan

    if path is not None:
        return load_plan(path)
    folder = PlanFolder(edge_of(market))
    folder.first()
    return folder.all()[-1]


def _follow(listener: StripeListener, market: Market, version: int, chosen_by: object) -> None:
    """A newer plan is in force: hear its stripes, if its file is here."""
    from isocast.runtime.edge.narrow.choosing import describe
    from isocast.runtime.edge.narrow.places import edge_of
    from isocast.runtime.edge.narrow.plans import PlanFolder

    found = [plan for plan in PlanFolder(edge_of(market)).all() if plan.version == version]
    if not found:
        note(
            f"isocast: plan {version} is in force, and {edge_of(market).plans} has no file of it: symbols may move away"
        )
        return
    try:
        listener.follow(chosen_by(found[-1]))  # type: ignore[operator]
        note(f"isocast: plan {version} is in force: {describe(listener.chosen, None)}")
    except ConfigurationError as reason:
        note(f"isocast: plan {version} is in force, but its stripes cannot be received: {reason}")


async def _until_stopped(
    listener: StripeListener, count: int | None, seconds: float | None, *, as_json: bool, quiet: bool
) -> None:
    stop = asyncio.Event()

    async def show() -> None:
        left = count
        async with listener:
            async for batch in listener:
                if not quiet:
                    _show(batch, as_json=as_json)
                left = None if left is None else left - len(batch.events)
                if left is not None and left <= 0:
                    return

    showing, waiting = asyncio.create_task(show()), asyncio.create_task(stop.wait())
    with shutdown.stopping(stop.set, seconds=shutdown.LAST_WORDS_S, waits_for="its lines are closed"):
        await asyncio.wait([showing, waiting], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if showing.done():
            showing.result()
        showing.cancel()
        with suppress(asyncio.CancelledError):
            await showing


def _show(batch: StripeBatch, *, as_json: bool) -> None:
    from isocast.runtime.client.rows import fields_of

    for event in batch.events.tolist():
        fields = fields_of(event)
        if as_json:
            line(dumps({"stripe": batch.stripe, "session": batch.session, **fields}))
        else:
            words = (fields["kind"], fields["floor"], fields["symbol"], fields["price"], fields["quantity"])
            line(f"{batch.stripe:>6} " + " ".join(f"{word!s:<9}" for word in words).rstrip())


def _report(listener: StripeListener, market: Market, *, as_json: bool) -> None:
    counts, total = listener.counts, listener.counts.total
    span_s = market.timing.token_period_ns / 1e9
    if as_json:
        own: dict[str, object] = {"packets": counts.packets, "ip_bytes": counts.ip_bytes, "strange": counts.strange}
        own |= {"peak_bytes": listener.peak, "token_period_s": span_s, "stripes": len(listener.chosen.stripes)}
        own |= {"forged": counts.forged, "unproven": counts.unproven, "unpaid": counts.unpaid}
        own |= {"filtered": counts.filtered, "unread": counts.unread}
        line(dumps({"counts": own | asdict(total)}))
        return
    line(
        f"{counted(total.messages, 'message')} in {counted(counts.packets, 'packet')}, {figure(counts.ip_bytes)} bytes."
    )
    peak = f"{figure(listener.peak)} bytes, {listener.peak * 8 / span_s / 1000:,.1f} kb/s"
    allowed = f"{figure(listener.chosen.period_bytes)} bytes"
    line(f"The busiest token period ({span_s:g} s) brought {peak}; its stripes may bring {allowed}.")
    repaired = f"{figure(total.repaired)} repaired of {figure(total.gaps)} gaps"
    line(f"{counted(total.lost, 'message')} lost, {repaired}, {figure(total.repeated)} received twice.")
    wrong = {
        "strange packets": counts.strange,
        "dropped by the kernel's filter": counts.filtered,
        "forged": counts.forged,
        "never proven": counts.unproven,
        "not paid for": counts.unpaid,
        "batches not read": counts.unread,
    }
    if any(wrong.values()):
        line("; ".join(f"{name}: {figure(count)}" for name, count in wrong.items() if count) + ".")
