"""`isocast gateway`: the market's sequence in formats for which others have decoders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import Config, Flag, Port, Seconds
from isocast.cli.render import figure, line, note, show_json
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.runtime.edge.feed import EdgeFeed, Split
    from isocast.runtime.edge.gateway import GatewayCounts, ItchGateway
    from isocast.runtime.market.model import Market, NodePlan

__all__ = ["app", "customer_named", "sent_text"]


app = App(
    name="gateway",
    help="Send what a market releases in formats for which decoders exist.",
    help_epilogue="Example:\n\n    isocast gateway itch --config market.toml --name edge\n",
)


@app.command(
    help_epilogue="""Examples:

    isocast gateway itch --config market.toml --name edge

    isocast gateway itch --config market.toml --name edge --plan stripes.toml --group 239.255.80.0

The seat is a customer of the market's file, with start = false. Exit code: 0 it was stopped, 2 bad input, 3 the machine
refused an address or a port.
"""
)
def itch(  # noqa: PLR0913 - where from, where to, and what for
    *,
    config: Config = None,
    name: str,
    group: str = "239.255.80.0",
    port: Port = 26_477,
    request_port: Annotated[int, Parameter(validator=Number(gte=0, lt=65_536))] = 26_478,
    interface: str | None = None,
    ttl: Annotated[int, Parameter(validator=Number(gte=0, lte=255))] = 1,
    plan: Path | None = None,
    directory: Path | None = None,
    zone: str = "UTC",
    keep: Annotated[int, Parameter(validator=Number(gte=1, lte=3_650))] = 7,
    seconds: Seconds | None = None,
    json: Flag = False,
) -> int:
    """Send the clear edge feed: ITCH 5.0 in MoldUDP64, the same numbers at every gateway, and answer requests.

    One session is one stripe on one day. What ITCH cannot say, such as quotes, is left out and counted. Started again,
    a gateway goes on with the next number; started for the first time, it takes the sequence from its beginning.

    Parameters
    ----------
    name
        The customer of the file to be; its address is where requests are heard.
    group
        The multicast group; with --plan that of the first narrow stripe, and the next ones for the others.
    port
        The UDP port of the groups.
    request_port
        The UDP port at which requests are answered; 0 takes a free one.
    interface
        The address of the interface by which to send, if not the customer's own.
    ttl
        How many routers a packet may pass.
    plan
        A stripe plan, TOML or JSON: one session and group for each narrow stripe.
    directory
        Where sessions are kept; a folder of the customer's data directory if left out.
    zone
        Where it is midnight when a session ends and the clock of ITCH starts.
    keep
        Days for which sessions are kept, and requests answered.
    seconds
        End after so long.
    json
        Print the final counts as one JSON object.
    """
    from isocast.runtime.client.listener import Listener
    from isocast.runtime.edge.feed import EdgeFeed
    from isocast.runtime.edge.gateway import ItchGateway, groups_of
    from isocast.runtime.market.file import open_market
    from isocast.runtime.net.sockets import Endpoint

    market = open_market(config)
    seat = customer_named(market, name)
    stripes, split = _striping(plan, seat.stripes[0])
    folder = directory or market.directory_of(name) / "edge"
    feed = EdgeFeed(folder, stripes, split, zone=zone, keep_days=keep, floors=[one.code for one in market.floors])

    def listening(start: int | str) -> Listener:
        # The books of the market's own floors are computed from the first message on, or from a state that was kept.
        begin = "beginning" if market.floors else start
        listener = Listener(market, name, latest=False, start=begin, told=_told, stripes=[seat.stripe])
        listener.show_books(zone, folder=folder, before=start if isinstance(start, int) else 1)
        return listener

    groups = dict(zip(stripes, groups_of(group, port, len(stripes)), strict=True))
    _check_apart(market, [endpoint.address for endpoint in groups.values()])
    gateway = ItchGateway(
        feed,
        listening,
        groups,
        Endpoint(seat.address, request_port),
        interface=interface or seat.address,
        ttl=ttl,
        told=_told,
    )
    shutdown.run(_until_stopped(_serve(gateway, name, [*groups.values()]), seconds))
    _report(gateway, as_json=json)
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast gateway websocket --config market.toml --name browsers

    isocast gateway websocket --config market.toml --name browsers --address 10.0.0.7 --origin https://desk.example

A client says {"subscribe": ["IBM", "VOD"]} or {"subscribe": "*"}, and gets a snapshot and then events, as JSON;
{"topics": ["quiz.buzzer"]} or {"topics": "*"} adds the opaque messages of these topics from then on. Needs the extra
`websocket`. Exit code: 0 it was stopped, 2 bad input, 3 the machine refused an address or a port.
"""
)
def websocket(  # noqa: PLR0913 - where from, where to, and for how many
    *,
    config: Config = None,
    name: str,
    port: Annotated[int, Parameter(validator=Number(gte=0, lt=65_536))] = 8_765,
    address: str = "127.0.0.1",
    origin: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    rows: Annotated[int, Parameter(validator=Number(gte=1, lte=10**7))] = 20_000,
    clients: Annotated[int, Parameter(validator=Number(gte=1, lte=65_536))] = 256,
    depth: Annotated[int, Parameter(validator=Number(gte=0, lte=1_000))] = 0,
    seconds: Seconds | None = None,
    json: Flag = False,
) -> int:
    """Serve the market's events as JSON rows over WebSockets, for browsers.

    A client subscribes to symbols, and gets the newest of each and then every event. One that does not keep up is told
    how many rows it did not get, and gets a snapshot instead; one that takes nothing for 20 seconds is sent away.

    Parameters
    ----------
    name
        The customer of the file to be.
    port
        The TCP port; 0 takes a free one.
    address
        The address to listen on. Whoever reaches it may read; away from loopback it speaks TLS, with the customer's
        certificate.
    origin
        Pages that may connect, such as https://desk.example, beside those of this machine.
    rows
        Rows that may wait for one client.
    clients
        Clients at once.
    depth
        Follow the books of floors that publish orders, from the beginning of what is kept; a client may then ask for
        so many levels of each side.
    seconds
        End after so long.
    json
        Print the final counts as one JSON object.
    """
    from isocast.runtime.client.listener import Listener
    from isocast.runtime.client.rows import fields_of
    from isocast.runtime.market.file import open_market
    from isocast.runtime.net.tls import server_tls

    try:
        from isocast.runtime.edge.web_gateway import WebGateway
    except ModuleNotFoundError:
        rule = "needs the package websockets: pip install isocast[websocket]"
        raise ConfigurationError("command line", "gateway websocket", rule) from None
    market = open_market(config)
    seat = customer_named(market, name)
    start = "beginning" if depth else "snapshot" if seat.retransmit else "now"
    listener = Listener(market, name, latest=False, start=start, told=_told, stripes=[seat.stripe])
    if depth:
        listener.show_books()
    tls = server_tls(market, replace(seat, address=address))
    gateway = WebGateway(
        address,
        port,
        fields_of,
        origins=origin or (),
        rows_max=rows,
        clients_max=clients,
        depth_max=depth,
        tls=None if tls is None else tls.context,
    )

    async def serve() -> None:
        telling = asyncio.create_task(
            _announce(gateway.ready, lambda: _welcome(name, gateway.place, is_secure=tls is not None))
        )
        try:
            await gateway.run(listener)
        finally:
            telling.cancel()

    shutdown.run(_until_stopped(serve(), seconds))
    counts = gateway.counts
    if json:
        show_json(asdict(counts))
    else:
        missed = f", {counted(counts.rows_missed, 'row')} conflated" if counts.rows_missed else ""
        opaque = f", {counted(counts.opaque, 'opaque message')}" if counts.opaque else ""
        served = f"{counted(counts.clients, 'client')}, {counted(counts.messages, 'message')}"
        line(f"{counted(counts.events, 'event')}{opaque}, {served}{missed}.")
    return 0


def _welcome(name: str, place: tuple[str, int], *, is_secure: bool) -> str:
    return f"{name} serves WebSockets at {'wss' if is_secure else 'ws'}://{place[0]}:{place[1]}; Ctrl-C ends it"


def customer_named(market: Market, name: str) -> NodePlan:
    """The customer of the market file with this name; ConfigurationError if there is none."""
    from isocast.runtime.market.model import NodeRole
    from isocast.terms.quantities import suggestion

    plan = market.by_name.get(name)
    if plan is None or plan.role is not NodeRole.CUSTOMER:
        names = [customer.name for customer in market.by_role(NodeRole.CUSTOMER)]
        rule = f"is not a customer{suggestion(name, names)}; there are {', '.join(names) or 'none'}"
        raise ConfigurationError(market.file, f"nodes.{name}", rule)
    return plan


def _striping(path: Path | None, core: int) -> tuple[tuple[int, ...], Split | None]:
    """The stripes to send, and which symbol is on which; without a plan one stripe, that of the core."""
    if path is None:
        return (core,), None
    from functools import partial

    from isocast.runtime.market.routes import load_plan

    plan = load_plan(path)
    stripes = tuple(stripe.number for stripe in plan.of_core(core))
    if not stripes:
        raise ConfigurationError(str(path), "core", f"has no plan for core stripe {core} of this market")
    return stripes, partial(plan.stripes_of, core=core)


def _told(text: str) -> None:
    note(f"isocast: {text}")


async def _serve(gateway: ItchGateway, name: str, groups: list[object]) -> None:
    def welcome() -> str:
        where = f"{groups[0]}" if len(groups) == 1 else f"{groups[0]} to {groups[-1]}, {len(groups)} stripes"
        return f"{name} sends MoldUDP64 to {where}; requests at {gateway.requests}; Ctrl-C ends it"

    telling = asyncio.create_task(_announce(gateway.ready, welcome))
    try:
        await gateway.run()
    finally:
        telling.cancel()


async def _announce(ready: asyncio.Event, text: Callable[[], str]) -> None:
    await ready.wait()
    _told(text())


async def _until_stopped(work: Coroutine[Any, Any, None], seconds: float | None) -> None:
    """Run until a signal, a time or an error."""
    stop = asyncio.Event()
    running = asyncio.create_task(work)
    waiting = asyncio.create_task(stop.wait())
    with shutdown.stopping(stop.set, seconds=shutdown.LAST_WORDS_S, waits_for="its sockets are closed"):
        await asyncio.wait([running, waiting], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def _check_apart(market: Market, groups: list[str]) -> None:
    """Who hears a group of the market's own would take this feed for it, and the other way round."""
    from ipaddress import IPv4Address

    from isocast.runtime.market.rules import groups_in_use

    taken = {str(IPv4Address(number)): what for _, what, number in groups_in_use(market)}
    clash = next((group for group in groups if group in taken), None)
    if clash is not None:
        raise ConfigurationError("command line", "--group", f"{clash} is {taken[clash]} of this market: choose another")


def _report(gateway: ItchGateway, *, as_json: bool) -> None:
    counts, feed = gateway.counts, gateway.feed
    if as_json:
        sessions = [{"stripe": stripe, "session": name, "next": number} for stripe, name, number in feed.running]
        exactness = {"left_out": feed.left_out, "written_without": feed.written_without}
        show_json({**asdict(counts), "missed": feed.missed, **exactness, "sessions": sessions})
        return
    line(sent_text(counts))
    for reason, count in counts.not_sent_why.items():
        line(f"Not multicast: {counted(count, 'ITCH message')}, {reason}; customers that lack them request them.")
    if counts.opaque:
        line(f"Left out: {counted(counts.opaque, 'opaque message')}, for which ITCH has no form.")
    if counts.unreadable:
        line(f"Left out: {counted(counts.unreadable, 'message')} with neither events nor an opaque message.")
    for reason, count in _left_out(feed):
        line(f"Not written exactly: {counted(count, 'event')}, {reason}.")
    for what, count in feed.written_without.items():
        line(f"Written without {what}: {counted(count, 'event')}.")


def sent_text(counts: GatewayCounts) -> str:
    """Every ITCH message once: sent live, sent late, or not multicast."""
    late = f" (up to {counts.latest_ns / 10**9:.1f} s)" if counts.sent_late else ""
    parts = f"{figure(counts.sent_live)} sent live, {figure(counts.sent_late)} sent late{late}"
    whole = f"{counted(counts.itch_messages, 'ITCH message')} from {counted(counts.events, 'event')}"
    asked = f"{counted(counts.packets, 'packet')}, {figure(counts.answered)} of {figure(counts.requests)} requests"
    return f"{whole}: {parts}, {figure(counts.not_sent)} not multicast; {asked}."


def _left_out(feed: EdgeFeed) -> list[tuple[str, int]]:
    return list(feed.left_out.items())
