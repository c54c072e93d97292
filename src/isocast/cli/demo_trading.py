"""What the demo shows of its trading floor: a line, a panel, and at the end what the traders did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from isocast.checks.skew import Quantiles
from isocast.cli.live_view import FAINT
from isocast.orders.accounts import amount_text, cash
from isocast.terms.instants import SECOND
from isocast.terms.market import from_ticks
from isocast.terms.quantities import counted
from isocast.trials.demo.floor_record import FloorRecord
from isocast.trials.demo.show import Show
from isocast.trials.demo.trading import city_of

if TYPE_CHECKING:
    from isocast.trials.demo.trading_summary import TradingSummary

__all__ = ["floor_line", "floor_panel", "floor_title", "floor_words", "trading_entries"]

_UNKNOWN = "–"
_PANEL: dict[str, Literal["left", "right"]] = {
    " symbol": "left",
    "bid": "right",
    "ask": "right",
    "last trade": "right",
    "orders": "left",
}


# While it runs ------------------------------------------------------------------------------------


def floor_words(floor: FloorRecord) -> str:
    """How far the floor is, in a few words."""
    if not floor.symbols:
        return f"{floor.code} opens"
    words = [counted(len(floor.trades), "trade"), f"{floor.confirmed:,} confirmed"]
    words.append(f"{counted(len(floor.orders), 'order')}, {floor.resting:,} rest")
    return f"{floor.code} {', '.join(words)}"


def floor_title(floor: FloorRecord) -> str:
    """Above the panel."""
    return f"The floor {floor_words(floor)}"


def floor_line(floor: FloorRecord) -> Text:
    """All of it in one line, for small terminals: counts, the last trade, the best prices."""
    text = Text(f"  {floor.code} ", style="bright_magenta", no_wrap=True, overflow="ellipsis")
    text.append(f"{counted(len(floor.trades), 'trade')}, {floor.confirmed:,} confirmed", style="")
    text.append(f", {counted(len(floor.orders), 'order')}", style="")
    if floor.last is not None:
        text.append(f"  {floor.last.symbol} {_price(floor.last.price)}", style="bold")
    for one in floor.prices():
        text.append(f"  {one.symbol} {_price(one.bid)}/{_price(one.ask)}", style=FAINT)
    return text


def floor_panel(show: Show, floor: FloorRecord) -> RenderableType:
    """A row for each symbol; beside them, what each city has ordered."""
    table = Table(box=None, padding=(0, 1), pad_edge=False, expand=True, header_style=FAINT)
    for name, justify in _PANEL.items():
        table.add_column(name, justify=justify, no_wrap=True)
    cities = _cities(show, floor)
    for place, one in enumerate(floor.prices()):
        table.add_row(
            Text(f" {one.symbol}", style="bright_magenta"),
            _price(one.bid),
            _price(one.ask),
            "" if one.last is None else f"{one.last.quantity} at {_price(one.last.price)}",
            Text(cities[place], style="green") if place < len(cities) else "",
        )
    return table


def _cities(show: Show, floor: FloorRecord) -> list[str]:
    orders = Counter([city_of(order >> 32) for order in floor.orders])
    traders = [] if show.session is None else show.session.traders
    return [f"{trader.seat.city} {orders[trader.seat.city]:,}" for trader in traders]


def _price(units: int | None) -> str:
    return _UNKNOWN if units is None else f"{from_ticks(units):.2f}"


# At the end ---------------------------------------------------------------------------------------


def trading_entries(trading: TradingSummary, victim: str, away: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Names and texts of the summary; `away` is the node that was killed, and `victim` its city."""
    cities = ", ".join([f"{line.city} {line.orders:,}" for line in trading.traders])
    yield "traders", _did(trading, cities)
    if trading.trades:
        yield "trades", list(_trades(trading))
        yield "clearing", list(_clearing(trading))
    if trading.state:
        yield "floor", list(_floor(trading, victim, away))


def _did(trading: TradingSummary, cities: str) -> list[str]:
    if not trading.orders:
        return ["none traded: the gateways were not ready before the floors closed"]
    refused = sum([line.refused for line in trading.traders])
    said = f"{cities}: {counted(trading.orders, 'order')} through two gateways"
    return [f"{said}, {counted(trading.cancels, 'cancel')}, {refused or 'none'} refused"]


def _trades(trading: TradingSummary) -> Iterator[str]:
    value = amount_text(cash(trading.currency), trading.value)
    left = trading.trades - trading.confirmed
    later = f", {left:,} not yet final at the end" if left else ""
    made = f"{counted(trading.trades, 'trade')} on {trading.floor}, worth {value}"
    yield f"{made}: {trading.confirmed:,} confirmed, {trading.busted or 'none'} busted{later}"
    if trading.to_tentative.count:
        yield f"tentative at the release of its token: {_waited(trading.to_tentative)} after its order was accepted"
    if trading.to_confirmed.count:
        later = f"at token t+{trading.tokens_to_confirmed:g}"
        yield f"confirmed {_waited(trading.to_confirmed)} after that release, {later}: then all hold its report"


def _waited(span: Quantiles) -> str:
    return f"{span.p50_ns / SECOND:.2f} s median, {span.p99_ns / SECOND:.2f} s p99,"


def _clearing(trading: TradingSummary) -> Iterator[str]:
    legs = f"{counted(trading.settled, 'leg')} of trades settled, each once"
    if trading.unsettled:
        legs += f"; {trading.unsettled:,} not yet"
    between = ", ".join([amount_text(asset, amount) for asset, amount in trading.clearing.items()])
    yield f"{legs}; between the gateways: {between if trading.clearing else 'zero, of every asset'}"
    bound = ", ".join([amount_text(asset, amount) for asset, amount in trading.reserved.items()])
    yield f"reserved: {bound}" if trading.reserved else "nothing is reserved any more; both books add up"


def _floor(trading: TradingSummary, victim: str, away: str) -> Iterator[str]:
    same = f"from {trading.agreeing} of {trading.receivers} journals: every trade recomputed, and as reported"
    yield f"state {trading.state[:12]} {same}"
    if trading.agreed:
        tokens = min(trading.agreed.values()), max(trading.agreed.values())
        upto = f"token {tokens[1]}" if tokens[0] == tokens[1] else f"tokens {tokens[0]} to {tokens[1]}"
        back = f"; {victim}, back again, up to token {trading.agreed[away]}" if away in trading.agreed else ""
        yield f"{len(trading.agreed)} cities knew that all had the same, up to {upto}{back}"
