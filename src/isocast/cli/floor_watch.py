"""`isocast floor watch`: the book of a running floor, live, and its trades as they become final."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from functools import partial
from itertools import islice, zip_longest
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from isocast.cli.options import Config, Flag, Seconds
from isocast.cli.render import line, note
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError
from isocast.terms.market import from_ticks
from isocast.terms.quantities import counted, suggestion

if TYPE_CHECKING:
    from rich.console import RenderableType

    from isocast.floor.book import BookSide
    from isocast.floor.confirming import ConfirmationFollower, News
    from isocast.floor.corrections import Judged
    from isocast.floor.events import Indicative, Trade
    from isocast.floor.machine import SymbolState
    from isocast.runtime.client.listener import Listener
    from isocast.runtime.client.received import ReceivedMessage

__all__ = ["FloorScreen", "ShownLevel", "TradeLine", "floor_frame", "screen_of", "watch"]

_FRAME_S: Final = 0.25
_TRADES_KEPT: Final = 200
_HEAD: Final = 9
"""Rows of a frame that are no levels and no trades."""
_SHARE: Final = 2
"""Of what is left, every second row shows a trade."""


class ShownLevel(NamedTuple):
    """A price of one side, with what it shows."""

    price: str
    quantity: int
    orders: int


class TradeLine(NamedTuple):
    """A trade, and what is known of it."""

    trade: Trade
    state: str


class FloorScreen:
    """A floor as its customers know it, computed from the sequence."""

    def __init__(self, code: str, follower: ConfirmationFollower | None = None) -> None:
        """Nothing was heard, or nothing behind what a follower has."""
        from isocast.floor.confirming import ConfirmationFollower
        from isocast.floor.following import FloorFollower

        self.code = code
        self.follower = ConfirmationFollower(FloorFollower(code)) if follower is None else follower
        self.begun_at = self.follower.follower.floor.token
        """The token behind which it is computed here; 0: from the first message on."""
        self.trades: deque[TradeLine] = deque(maxlen=_TRADES_KEPT)
        """The newest last."""
        self.indicative: dict[str, Indicative] = {}
        """What the auction of a symbol's call would do, as of its last change."""
        self.differing = 0
        """Reports that say something else than the sequence; 0 is right."""

    def take(self, message: ReceivedMessage) -> list[dict[str, object]]:
        """The next message; what is new, as rows for programs."""
        from isocast.floor.following import FloorMessage

        if message.token <= self.begun_at:
            return []
        heard = FloorMessage(message.sequence, message.topic, message.payload, message.shuffle_key)
        return [row for one in self.follower.hear(message.token, message.instant_ns, heard) for row in self._new(one)]

    def _new(self, news: News) -> Iterable[dict[str, object]]:
        from isocast.floor.confirming import Confirmed, Corrected, ReportDiffers, Tentative
        from isocast.floor.events import Indicative

        match news:
            case Tentative(step):
                self.trades.extend([TradeLine(trade, "tentative") for trade in step.trades])
                calls = [told.report for told in step.reports if isinstance(told.report, Indicative)]
                self.indicative |= {one.symbol: one for one in calls}
                rows = [_row(trade, "tentative", step.token) for trade in step.trades]
                return [*rows, *[_call_row(one, step.token) for one in calls]]
            case Confirmed(trades, token):
                final = {trade.number for trade in trades}
                shown = [one._replace(state="confirmed") if one.trade.number in final else one for one in self.trades]
                self.trades = deque(shown, _TRADES_KEPT)
                return [_row(trade, "confirmed", token) for trade in trades]
            case ReportDiffers(token):
                self.differing += 1
                return [{"differs": token}]
            case Corrected(judged, token):
                return self._corrected(judged, token)

    def _corrected(self, judged: Judged, token: int) -> Iterable[dict[str, object]]:
        right = judged.correction.corrected
        if judged.fault is not None:
            return [{"correction": right.number, "token": token, "refused": str(judged.fault)}]
        state = "void" if judged.correction.is_void else "corrected"
        line = TradeLine(judged.correction.trade if judged.correction.is_void else right, state)
        self.trades = deque([line if one.trade.number == right.number else one for one in self.trades], _TRADES_KEPT)
        return [_row(right, state, token)]

    @property
    def symbols(self) -> dict[str, SymbolState]:
        """What trades there."""
        return self.follower.follower.floor.symbols

    def levels(self, symbol: str, most: int) -> tuple[list[ShownLevel], list[ShownLevel]]:
        """The best prices of buys and sells."""
        book = self.symbols[symbol].book
        return _levels(book.buys, most), _levels(book.sells, most)


def _levels(side: BookSide, most: int) -> list[ShownLevel]:
    return [
        ShownLevel(
            "market" if level[0].is_market else f"{from_ticks(level[0].price):f}",
            sum(order.shown for order in level),
            len(level),
        )
        for level in islice(side.levels(), most)
    ]


def _row(trade: Trade, state: str, token: int) -> dict[str, object]:
    return {
        "trade": trade.number,
        "state": state,
        "token": token,
        "symbol": trade.symbol,
        "price": f"{from_ticks(trade.price):f}",
        "quantity": trade.quantity,
        "buy": trade.buy,
        "sell": trade.sell,
    }


def _call_row(told: Indicative, token: int) -> dict[str, object]:
    return {
        "indicative": told.symbol,
        "token": token,
        "price": None if told.price is None else f"{from_ticks(told.price):f}",
        "volume": told.volume,
        "surplus": told.surplus,
    }


def _call_text(told: Indicative | None) -> str:
    """What an auction would do, in a few words."""
    if told is None or told.price is None:
        return "nothing would trade"
    surplus = f", {abs(told.surplus):,} {'bought' if told.surplus > 0 else 'sold'} too many" if told.surplus else ""
    return f"would trade {told.volume:,} at {from_ticks(told.price):f}{surplus}"


def floor_frame(screen: FloorScreen, symbol: str | None, width: int, height: int) -> RenderableType:
    """One frame: the ladder of a symbol, or of the first, and the newest trades."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from isocast.cli.live_view import FAINT, panel

    floor = screen.follower.follower.floor
    name = symbol or next(iter(screen.symbols), None)
    rows = max((height - _HEAD) // _SHARE, 1)
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append(f" {screen.code} ", style="bold black on yellow")
    head.append(f"  token {floor.token:,}, {counted(floor.next_trade - 1, 'trade')}, {screen.follower.confirmed:,}")
    head.append(" confirmed")
    if screen.differing:
        head.append(f"  {counted(screen.differing, 'report')} differ", style="bold red")
    if name is None or name not in screen.symbols:
        return Group(head, panel(Text("nothing trades here yet: isocast floor open", style=FAINT), symbol or "book"))
    state = screen.symbols[name]
    ladder = Table.grid(padding=(0, 2), expand=True)
    for justify in ("right", "right", "right", "left", "left", "left"):
        ladder.add_column(justify=justify, no_wrap=True)
    ladder.add_row(*[Text(text, style=FAINT) for text in ("orders", "quantity", "bid", "ask", "quantity", "orders")])
    bids, asks = screen.levels(name, rows)
    for bid, ask in zip_longest(bids, asks):
        left = ("", "", "") if bid is None else (f"{bid.orders:,}", f"{bid.quantity:,}", bid.price)
        right = ("", "", "") if ask is None else (ask.price, f"{ask.quantity:,}", f"{ask.orders:,}")
        ladder.add_row(*left[:2], Text(left[2], style="green"), Text(right[0], style="red"), *right[1:])
    trades = Table.grid(padding=(0, 2))
    for one in islice(reversed(screen.trades), rows):
        style = "bold" if one.state == "confirmed" else FAINT
        trade = one.trade
        cells = (f"{trade.number:,}", trade.symbol, f"{from_ticks(trade.price):f}", f"{trade.quantity:,}", one.state)
        trades.add_row(*[Text(cell, style=style) for cell in cells])
    last = "-" if state.reference is None else f"{from_ticks(state.reference):f}"
    call = f", {_call_text(screen.indicative.get(name))}" if state.phase.is_call else ""
    book = panel(ladder, f"{name}: {state.phase}, last {last}{call}")
    shown = trades if screen.trades else Text("none yet", style=FAINT)
    return Group(head, book, panel(shown, "trades"), Text(" " * max(width - 1, 0)))


def screen_of(code: str, journal: Path | None) -> tuple[FloorScreen, int]:
    """A floor's screen, and the first sequence that it needs: with a journal, behind the state kept beside it."""
    from isocast.runtime.disk.floor_journal import JournalFloor

    if journal is None:
        return FloorScreen(code), 1
    kept = JournalFloor(journal, code, is_whole=False)
    screen = FloorScreen(code, kept.followed())
    where = f"the state kept after token {screen.begun_at:,}" if screen.begun_at else "the first message on"
    note(f"isocast: {code} is computed from {where}")
    return screen, screen.follower.follower.sequence + 1


def watch(
    code: str | None = None,
    /,
    *,
    symbol: str | None = None,
    journal: Path | None = None,
    config: Config = None,
    seconds: Seconds | None = None,
    json: Flag = False,
) -> int:
    """Show the book of a running floor, live, and its trades as they become final.

    It hears the sequence as a guest, and computes the floor itself. Where there is no terminal it prints a line for
    each trade when it is made and when it is confirmed, and for each change of what an auction would do.

    Parameters
    ----------
    code
        Of the floor, such as XISO; the only one, if left out.
    symbol
        Whose book is shown; the first, if left out.
    journal
        Of a site on this machine: begin with the state that it keeps beside it, if a report in the journal names that
        state's hash. Otherwise the whole sequence is heard, which takes long on a long day.
    seconds
        End after so long.
    json
        Print each trade as one JSON object on a line.
    """
    from isocast.floor.codec import floor_topic
    from isocast.floor.corrections import correction_topic
    from isocast.floor.reporting import report_topic
    from isocast.runtime.client.listener import Listener
    from isocast.runtime.market.file import open_market
    from isocast.runtime.operate.floor_change import find_floor

    market = open_market(config)
    floor = find_floor(market, code)
    known = [one.symbol for one in floor.symbols]
    if symbol is not None and symbol not in known:
        rule = f"{symbol} does not trade at {floor.code}{suggestion(symbol, known)}"
        raise ConfigurationError("command line", "--symbol", rule)
    code = floor.code
    topics = (floor_topic(code), report_topic(code), correction_topic(code), f"{floor_topic(code)}/tick")
    screen, first = screen_of(code, journal)
    start = "beginning" if first == 1 else first
    listener = Listener(market, None, latest=False, start=start, topics=topics)
    shutdown.run(_watch(listener, screen, symbol, seconds, as_json=json))
    trades = screen.follower.follower.floor.next_trade - 1
    note(f"isocast: {counted(trades, 'trade')}, {screen.follower.confirmed:,} confirmed")
    return 0


async def _watch(
    listener: Listener, screen: FloorScreen, symbol: str | None, seconds: float | None, *, as_json: bool
) -> None:
    from isocast.cli.listen import tell_silence, until_first
    from isocast.cli.live_view import can_draw

    stop = asyncio.Event()
    draws = not as_json and can_draw()
    with shutdown.stopping(stop.set, seconds=shutdown.LAST_WORDS_S, waits_for="its lines are closed"):
        async with listener:
            beside = [tell_silence(listener)]
            if draws:
                beside.append(_draw(screen, symbol))
            hearing = _hear(listener, screen, as_json=as_json, prints=not draws)
            await until_first([hearing, stop.wait()], beside, seconds)


async def _hear(listener: Listener, screen: FloorScreen, *, as_json: bool, prints: bool) -> None:
    async for batch in listener:
        for message in batch.messages():
            for row in screen.take(message):
                if as_json:
                    line(dumps(row))
                elif prints:
                    line(_sentence(row))


def _sentence(row: dict[str, object]) -> str:
    if "differs" in row:
        return f"a report of token {row['differs']} says something else than the sequence"
    if "indicative" in row:
        said = "nothing would trade" if row["price"] is None else f"{row['volume']} would trade at {row['price']}"
        return f"{row['indicative']}: {said}, surplus {row['surplus']}"
    return f"{row['trade']}: {row['quantity']} {row['symbol']} at {row['price']}, {row['state']}"


async def _draw(screen: FloorScreen, symbol: str | None) -> None:
    from isocast.cli.live_view import live_screen

    with live_screen() as draw:
        while True:
            draw(partial(floor_frame, screen, symbol))
            await asyncio.sleep(_FRAME_S)
