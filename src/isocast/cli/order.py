"""`isocast order`: buy, sell, cancel and watch at a gateway."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import Count, Flag
from isocast.cli.render import line, show_json, show_table
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.table import Table

    from isocast.runtime.client.trader import Trader
    from isocast.runtime.client.trading_answers import OrderReport

__all__ = ["GatewayChoice", "app", "report_fields", "show_one"]

URL, TOKEN_FILE, CA = "ISOCAST_TRADER_URL", "ISOCAST_TRADER_TOKEN_FILE", "ISOCAST_TRADER_CA"
"""Of the environment: where the gateway is, a file with the token, and the CA that is believed."""
_TOKEN_BYTES_MAX = 1_024
_ROWS_MAX = 30
"""Orders of a live table: a screen."""

ResultT = TypeVar("ResultT")

app = App(
    name="order",
    help="Buy, sell, cancel and watch at a gateway, as one trader.",
    help_epilogue="""Start with:

    export ISOCAST_TRADER_URL=https://127.0.0.1:8443 ISOCAST_TRADER_TOKEN_FILE=trader.token ISOCAST_TRADER_CA=ca.crt

    isocast order buy ISO 100 10.05

The token is read from a file that only you can read (chmod 600), never from the command line. Exit code: 0 done, 2 bad
input or refused, 3 no gateway answers.
""",
)

app.command("isocast.cli.order_send:send", name="send")


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class GatewayChoice:
    """Which gateway, and who asks."""

    url: str | None = None
    """Of the gateway: https://HOST:PORT; left out, that of ISOCAST_TRADER_URL."""
    ca: Path | None = None
    """The CA of the market, in PEM; left out, that of ISOCAST_TRADER_CA, or those that this machine believes."""
    token_file: Path | None = None
    """A file that only you can read, with the token; left out, that of ISOCAST_TRADER_TOKEN_FILE."""
    patience: Annotated[float, Parameter(validator=Number(gt=0))] = 10.0
    """How many seconds the gateway may be away."""

    def trader(self) -> Trader:
        """Whoever asks; ConfigurationError, which says what to do, where something is not known."""
        from os import environ

        from isocast.runtime.client.trader import Trader

        url = self.url or environ.get(URL)
        if not url:
            raise ConfigurationError("command line", "--url", f"say where the gateway is, or set {URL}")
        file = self.token_file or (Path(environ[TOKEN_FILE]) if environ.get(TOKEN_FILE) else None)
        if file is None:
            rule = f"name a file with your token, or set {TOKEN_FILE}"
            raise ConfigurationError("command line", "--token-file", rule)
        ca = self.ca or (Path(environ[CA]) if environ.get(CA) else None)
        return Trader(url, token=_token(file), ca=ca, patience_s=self.patience)

    def run(self, work: Callable[[Trader], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """What comes of something that a trader does."""
        from isocast.runtime.operate import shutdown

        trader = self.trader()

        async def whole() -> ResultT:
            async with trader:
                return await work(trader)

        return shutdown.run(whole())


_PLACE = GatewayChoice()


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Terms:
    """How an order finds its price, and how long it lives."""

    market: Flag = False
    """At the best prices there are, within the collar; there is no price then."""
    stop: str | None = None
    """Wait for a trade at this price; then a limit order, or a market order if there is no price."""
    ioc: Flag = False
    """Trade at once; cancel what is left."""
    fok: Flag = False
    """Trade all of it at once, or nothing."""
    gtc: Flag = False
    """Live until it is cancelled; otherwise an order ends with the day."""
    until: str | None = None
    """Live until this instant, such as 2030-03-31T16:00:00Z."""
    post_only: Flag = False
    """Refuse it rather than trade at once."""
    show: Annotated[int, Parameter(validator=Number(gte=0))] = 0
    """Show others so much of it at a time; 0: all."""
    id: str | None = None
    """Your own id of it; repeated with the same one, it is entered once. Left out, one is made."""

    def said(self) -> dict[str, Any]:
        """As `Trader.buy` takes it."""
        chosen = [name for name in ("ioc", "fok", "gtc") if getattr(self, name)]
        if len(chosen) > 1:
            both = " and ".join(f"--{name}" for name in chosen)
            raise ConfigurationError("command line", both, "contradict each other: give one of them")
        return {
            "market": self.market,
            "stop": self.stop,
            "lifetime": chosen[0] if chosen else "day",
            "until": self.until,
            "post_only": self.post_only,
            "show": self.show,
            "client_id": self.id,
        }


_TERMS = Terms()
_DONE = "Example:\n\n    isocast order {}\n"
Symbol = Annotated[str, Parameter(help="What to trade.")]
Quantity = Annotated[int, Parameter(validator=Number(gte=1), help="How many, in whole lots.")]
Limit = Annotated[str | None, Parameter(help="The limit; left out with --market, or of a stop.")]
OwnId = Annotated[str, Parameter(help="The id of the order, as `list` shows it.")]


def _entering(side: str, summary: str, examples: str) -> None:
    """Make the command that buys, or the one that sells."""

    def enter(
        symbol: Symbol,
        quantity: Quantity,
        price: Limit = None,
        /,
        *,
        terms: Terms = _TERMS,
        wait: Flag = False,
        place: GatewayChoice = _PLACE,
        json: Flag = False,
    ) -> int:
        """Enter an order.

        Parameters
        ----------
        wait
            Stay until the order has ended; Ctrl-C leaves it as it is.
        json
            Print one JSON object instead of a line.
        """
        said = terms.said()
        if price is None and not terms.market and terms.stop is None:
            rule = "is missing: give the limit after the quantity, or say --market"
            raise ConfigurationError("command line", "PRICE", rule)

        async def work(trader: Trader) -> OrderReport:
            order = await getattr(trader, side)(symbol, quantity, price, **said)
            report: OrderReport = await order.ended() if wait else order.report
            return report

        show_one(place.run(work), as_json=json)
        return 0

    app.command(enter, name=side, help=summary, help_epilogue=examples)


_entering(
    "buy",
    "Buy so many at a price or better.",
    """Examples:

    isocast order buy ISO 100 10.05

    isocast order buy ISO 100 10.05 --ioc

    isocast order buy ISO 100 --market

    isocast order buy ISO 100 10.20 --stop 10.10 --gtc --wait
""",
)
_entering(
    "sell",
    "Sell so many at a price or better.",
    """Examples:

    isocast order sell ISO 100 10.05

    isocast order sell ISO 100 9.90 --stop 9.95

    isocast order sell ISO 5000 10.05 --show 500 --post-only
""",
)


@app.command(
    help_epilogue="""Examples:

    isocast order cancel 5f1c22d0a4b7-1

    isocast order cancel 5f1c22d0a4b7-1 --quantity 50

    isocast order cancel --all --symbol ISO
"""
)
def cancel(
    order: Annotated[str | None, Parameter(help="The id of the order, as `list` shows it.")] = None,
    /,
    *,
    quantity: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    all: Flag = False,  # noqa: A002 - its name on the command line
    symbol: str | None = None,
    place: GatewayChoice = _PLACE,
    json: Flag = False,
) -> int:
    """Cancel an order, a part of it, or all there are.

    Parameters
    ----------
    quantity
        Cancel only so much of it; 0: all that is left.
    all
        All live orders of the account.
    symbol
        With --all: only those of this symbol.
    json
        Print one JSON object instead of a line.
    """
    if (order is None) is not all or (symbol is not None and not all) or (quantity and all):
        rule = "name one order, and what --quantity of it; or say --all, with or without --symbol"
        raise ConfigurationError("command line", "ORDER", rule)
    if order is None:
        ended = place.run(lambda trader: trader.cancel_all(symbol))
        show_json({"cancelled": ended}) if json else line(f"{ended:,} cancelled.")
        return 0
    name = order
    show_one(place.run(lambda trader: trader.cancel(name, quantity)), as_json=json)
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast order replace 5f1c22d0a4b7-1 --price 10.06

    isocast order replace 5f1c22d0a4b7-1 --quantity 80

Smaller at the same price keeps its place in the queue; anything else loses it.
"""
)
def replace(
    order: OwnId,
    /,
    *,
    quantity: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    price: str | None = None,
    stop: str | None = None,
    place: GatewayChoice = _PLACE,
    json: Flag = False,
) -> int:
    """Give an order another total, price or stop.

    Parameters
    ----------
    quantity
        The new total, what is filled included.
    price
        The new limit.
    stop
        The new trigger.
    json
        Print one JSON object instead of a line.
    """
    if quantity is None and price is None and stop is None:
        rule = "say what is to change: --quantity, --price or --stop"
        raise ConfigurationError("command line", "replace", rule)
    said = place.run(lambda trader: trader.replace(order, quantity=quantity, price=price, stop=stop))
    show_one(said, as_json=json)
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast order offer sell ISO 5000 10.05

    isocast order cancel 5f1c22d0a4b7-1 --quantity 1000
"""
)
def offer(
    side: Annotated[Literal["buy", "sell"], Parameter(help="What you want.")],
    symbol: Symbol,
    quantity: Quantity,
    price: Annotated[str, Parameter(help="Of a unit.")],
    /,
    *,
    id: str | None = None,  # noqa: A002 - its name on the command line
    place: GatewayChoice = _PLACE,
    json: Flag = False,
) -> int:
    """Offer something to all, in no book: whoever takes it first in the sequence has it, in parts too.

    It stands until it is taken or cancelled, whatever the phase of its symbol.

    Parameters
    ----------
    id
        Your own id of it; repeated with the same one, it is entered once. Left out, one is made.
    json
        Print one JSON object instead of a line.
    """

    async def work(trader: Trader) -> OrderReport:
        order = await getattr(trader, side)(symbol, quantity, price, open_offer=True, client_id=id)
        report: OrderReport = order.report
        return report

    show_one(place.run(work), as_json=json)
    return 0


@app.command(help_epilogue=_DONE.format("offers"))
def offers(*, place: GatewayChoice = _PLACE, json: Flag = False) -> int:
    """Show the open offers of all gateways, and who took what of them.

    Parameters
    ----------
    json
        Print one JSON list instead of a table.
    """
    found = place.run(lambda trader: trader.offers())
    if json:
        show_json([{**asdict(one), "offer": str(one.offer), "price": str(one.price)} for one in found])
        return 0
    rows = [
        (
            str(one.offer),
            f"{one.side} {one.symbol}",
            _short(one.price),
            f"{one.left:,}",
            f"{one.quantity:,}",
            ", ".join(f"{account}: {quantity:,}" for account, quantity in one.taken),
        )
        for one in found
    ]
    show_table("Open offers", ("offer", "side", "price", "left", "of", "taken by"), rows)
    return 0


@app.command(help_epilogue=_DONE.format("take 4503668346847233 100"))
def take(
    offer: Annotated[int, Parameter(help="Its number, as `offers` shows it.")],
    quantity: Quantity,
    /,
    *,
    wait: Flag = False,
    id: str | None = None,  # noqa: A002 - its name on the command line
    place: GatewayChoice = _PLACE,
    json: Flag = False,
) -> int:
    """Take an open offer, or a part of it, at its price; what is no longer left of it is cancelled.

    Parameters
    ----------
    wait
        Stay until the sequence has decided.
    id
        Your own id of it; repeated with the same one, it is taken once. Left out, one is made.
    json
        Print one JSON object instead of a line.
    """

    async def work(trader: Trader) -> OrderReport:
        order = await trader.take(offer, quantity, client_id=id)
        return await order.ended() if wait else order.report

    show_one(place.run(work), as_json=json)
    return 0


@app.command(name="list", help_epilogue=_DONE.format("list --all"))
def list_orders(*, all: Flag = False, place: GatewayChoice = _PLACE, json: Flag = False) -> int:  # noqa: A002
    """Show your orders as they are now, newest last.

    Parameters
    ----------
    all
        Those that have ended, too.
    json
        Print one JSON list instead of a table.
    """
    found = place.run(lambda trader: trader.orders(live=not all))
    if json:
        show_json([report_fields(one) for one in found])
    else:
        show_table("Orders", _HEADERS, [_row(one) for one in found])
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast order watch

    isocast order watch --after 1200 --json

On a terminal it is a table of orders that changes as they do; elsewhere one line for each report. Ctrl-C ends it.
"""
)
def watch(*, after: int = 0, count: Count | None = None, place: GatewayChoice = _PLACE, json: Flag = False) -> int:
    """Show what becomes of your orders, as it happens; after a lost connection it goes on without a gap.

    Parameters
    ----------
    after
        The number of the last report that you have; 0: from the first.
    count
        End after so many reports.
    json
        Print one JSON object for each report.
    """
    place.run(lambda trader: _watch(trader, after, count, as_json=json))
    return 0


@app.command(help_epilogue=_DONE.format("balances"))
def balances(*, place: GatewayChoice = _PLACE, json: Flag = False) -> int:
    """Show what your account has, and what of it is reserved.

    Parameters
    ----------
    json
        Print one JSON list instead of a table.
    """
    found = place.run(lambda trader: trader.balances())
    if json:
        show_json([{name: _plain(value) for name, value in asdict(one).items()} for one in found])
    else:
        rows = [(one.asset, one.kind, f"{one.available:,}", f"{one.reserved:,}") for one in found]
        show_table("Balances", ("asset", "kind", "available", "reserved"), rows)
    return 0


# ---- what is read and shown


def _token(file: Path) -> str:
    """The token in a file; ConfigurationError, which does not show it, for one that others may read."""
    from isocast.runtime.market.secret_files import OTHERS, read_file

    if not file.exists():
        rule = "is missing: write the token that your broker gave you into it, and chmod 600 it"
        raise ConfigurationError(str(file), "token", rule)
    token = read_file(file, _TOKEN_BYTES_MAX, OTHERS).decode("ascii", errors="replace").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError(str(file), "token", "must be one line of printable ASCII without spaces")
    return token


_HEADERS = ("id", "order", "price", "filled", "left", "average", "status")


def _what(one: OrderReport) -> str:
    return f"{one.side} {one.quantity:,} {one.symbol}"


def _at(one: OrderReport) -> str:
    parts = [] if one.price is None else [_short(one.price)]
    parts += [] if one.trigger is None else [f"stop {_short(one.trigger)}"]
    return ", ".join(parts) or "market"


def _short(price: Decimal) -> str:
    """Two decimals, or four where they say something."""
    text = f"{price:.4f}"
    return text.removesuffix("00")


def _row(one: OrderReport) -> tuple[str, ...]:
    average = "" if one.average_price is None else _short(one.average_price)
    return one.client_id, _what(one), _at(one), f"{one.filled:,}", f"{one.left:,}", average, one.status


def report_fields(one: OrderReport) -> dict[str, object]:
    """A report as JSON prints it."""
    from isocast.terms.instants import instant_text

    said = {name: _plain(value) for name, value in asdict(one).items() if name != "at_ns"}
    return {**said, "order": str(one.order), "at": instant_text(one.at_ns)}


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Decimal) else value


def show_one(one: OrderReport, *, as_json: bool) -> None:
    """A report as a line, or as one JSON object."""
    if as_json:
        show_json(report_fields(one))
        return
    filled = f", {one.filled:,} filled at {_short(one.average_price)}" if one.average_price is not None else ""
    line(f"{one.original_id or one.client_id}: {_what(one)} at {_at(one)}: {_news(one)}{filled}.")


def _news(one: OrderReport) -> str:
    """How an order is, or what was done to it."""
    return one.status if one.kind in ("accepted", "status") or one.is_final else one.kind


async def _watch(trader: Trader, after: int, count: int | None, *, as_json: bool) -> None:
    from contextlib import aclosing

    from isocast.cli.live_view import can_draw

    show = _table_of_orders if can_draw() and not as_json else _lines_of_reports(as_json=as_json)
    with show() as told:
        async with aclosing(trader.reports(after)) as reports:
            async for report in reports:
                told(report)
                count = None if count is None else count - 1
                if count == 0:
                    return


def _lines_of_reports(*, as_json: bool) -> Callable[[], AbstractContextManager[Callable[[OrderReport], None]]]:
    from json import dumps

    def told(one: OrderReport) -> None:
        if as_json:
            line(dumps(report_fields(one)))
        else:
            trade = f" {one.last_quantity:,} at {_short(one.last_price)}" if one.trade else ""
            why = f": {one.text}" if one.text else ""
            line(f"{one.number}  {one.client_id}  {_what(one)} at {_at(one)}  {one.kind}{trade}{why}")
        sys.stdout.flush()

    return lambda: nullcontext(told)


@contextmanager
def _table_of_orders() -> Iterator[Callable[[OrderReport], None]]:
    """A table on the terminal, in which the order that changed last stands last."""
    from rich.live import Live

    orders: dict[int | str, OrderReport] = {}
    with Live(_drawn(()), auto_refresh=False) as live:

        def told(one: OrderReport) -> None:
            orders.pop(one.order or one.client_id, None)
            orders[one.order or one.client_id] = one
            while len(orders) > _ROWS_MAX:
                del orders[next(iter(orders))]
            live.update(_drawn(orders.values()), refresh=True)

        yield told


def _drawn(orders: Iterable[OrderReport]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in (*_HEADERS, "news"):
        table.add_column(header)
    for one in orders:
        table.add_row(*map(Text, (*_row(one), one.kind)))
    return table
