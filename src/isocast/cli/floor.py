"""`isocast floor`: the rules of a trading floor, to read and to try; recordings and journals through them."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from inspect import getdoc
from itertools import islice, zip_longest
from pathlib import Path
from time import monotonic
from typing import IO, TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.floor_correct import correct, countersign
from isocast.cli.floor_lots import bid, lots, open_lot, reveal
from isocast.cli.floor_operate import open_floor, phase, session
from isocast.cli.floor_watch import watch
from isocast.cli.options import AS_THE_FILES_SAY, Count, FeedChoice, Flag, Rosters
from isocast.cli.render import Progress, figure, note, show_json, show_table
from isocast.cli.render import line as say
from isocast.terms.errors import ConfigurationError, RemoteProtocolError
from isocast.terms.instruments import scale_of
from isocast.terms.quantities import counted, suggestion

if TYPE_CHECKING:
    from isocast.floor.machine import SymbolState
    from isocast.runtime.client.floor_replay import FloorReplay, OrderFileReplay, ReplayStats
    from isocast.runtime.disk.floor_journal import FloorVerdict, JournalFloor, SteppedTrade

__all__ = ["app"]

app = App(
    name="floor",
    help="A trading floor as a function: its rules, cases of your own, recordings replayed, journals verified.",
    help_epilogue="Start with:\n\n    isocast floor rules\n",
)

app.command(open_floor, name="open", help_epilogue="Example:\n\n    isocast floor open XISO --config market.toml\n")
app.command(
    session,
    help_epilogue="Examples:\n\n    isocast floor session today\n\n    isocast floor session 2026-11-27 XISO --json\n",
)
app.command(phase, help_epilogue="Example:\n\n    isocast floor phase halted XISO --symbol ISO\n")
app.command(
    watch,
    help_epilogue="""Examples:

    isocast floor watch XISO

    isocast floor watch --json | head -5

    isocast floor watch --journal data/london/journal
""",
)
app.command(
    open_lot,
    name="open-lot",
    help_epilogue="""Examples:

    isocast floor open-lot VASE 1 50.00 --closes 2030-03-31T16:00:00Z --reveal-until 2030-03-31T17:00:00Z

    isocast floor open-lot TULIP 30 70.00 --start 100.00 --step 5.00

The gateway and the token are those of `isocast order`.
""",
)
app.command(lots, help_epilogue="Example:\n\n    isocast floor lots\n")
app.command(
    bid,
    help_epilogue="""Examples:

    isocast floor bid 4503668346847233 80.00 --ceiling 200.00 --wait

    isocast floor bid 4503668346847234 85.00 --quantity 10
""",
)
app.command(reveal, help_epilogue="Example:\n\n    isocast floor reveal --keep bids\n")
app.command(
    correct,
    help_epilogue="""Examples:

    isocast floor correct 1207 data/london/journal --void --operator-key identity-anna.key --out correction.txt

    isocast floor correct 1207 data/london/journal --price 10.05 --operator-key identity-anna.key --out correction.txt

Then another operator: isocast floor countersign correction.txt JOURNAL --operator-key FILE
""",
)
app.command(
    countersign,
    help_epilogue="""Example:

    isocast floor countersign correction.txt data/tokyo/journal --operator-key identity-ben.key
""",
)

_WRONG = 1
_PATIENCE_S = 2.0
"""A command that takes longer shows how far it has come."""
_DIFFERENCES_SHOWN = 10
_LEVELS_SHOWN = 10
_Token: TypeAlias = Annotated[int, Parameter(validator=Number(gte=1, lt=2**63))]
_Millis: TypeAlias = Annotated[float, Parameter(validator=Number(gt=0, lte=3_600_000))]
_RULES = {
    "trade-price": "trade_price",
    "continuous": "continuous",
    "uniform-price": "uniform_price",
    "sharing": "sharing",
    "second-price": "second_price",
    "dutch": "dutch_clock",
}


@app.command(
    help_epilogue="""Examples:

    isocast floor rules

    isocast floor rules uniform-price
"""
)
def rules(name: str | None = None, /, *, json: Flag = False) -> int:
    """Explain the rules by which orders trade, each with a worked example.

    Parameters
    ----------
    name
        Of one rule; all, if left out.
    json
        Print one JSON object instead of text.
    """
    if name is not None and name not in _RULES:
        raise ConfigurationError("command line", "NAME", f"the rules are {', '.join(_RULES)}")
    wanted = _RULES if name is None else {name: _RULES[name]}
    texts = {rule: getdoc(import_module(f"isocast.floor.rules.{module}")) or "" for rule, module in wanted.items()}
    if json:
        show_json(texts)
        return 0
    for number, (rule, text) in enumerate(texts.items()):
        say(f"{'' if not number else chr(10)}{rule}\n")
        say("\n".join(f"  {row}".rstrip() for row in text.splitlines()))
    return 0


@app.command(
    help_epilogue="""Example:

    isocast floor lines < cases.jsonl

A small case, which prints one trade and the books:

    {"kind": "directory", "symbol": "ISO", "tick": 1, "lot": 1, "phase": "open"}

    {"kind": "token", "t": 1, "T": 0}

    {"kind": "order", "id": 1, "account": 7, "symbol": "ISO", "side": "sell", "quantity": 100, "price": 1002}

    {"kind": "order", "id": 2, "account": 8, "symbol": "ISO", "side": "buy", "quantity": 40, "price": 1005}

docs/reference/floor-lines.md has every field. Exit code: 0 all lines were events, 1 some were refused as unreadable.
"""
)
def lines() -> int:
    """Read events as JSON lines from standard input, and print trades, reports and books as they come.

    A line that is no event is told on standard error with its number, and changes nothing.
    """
    if sys.stdin is None:
        raise ConfigurationError("standard input", "input", "is closed: send events through a pipe")
    return _filter(sys.stdin, sys.stdout)


def _filter(source: IO[str], sink: IO[str]) -> int:
    from isocast.floor.lines import FloorLines

    floor, wrong = FloorLines(), 0
    for number, row in enumerate(source, 1):
        if not row.strip():
            continue
        try:
            for told in floor.read(row):
                sink.write(json_module.dumps(told, separators=(",", ":")) + "\n")
        except RemoteProtocolError as error:
            wrong += 1
            note(f"line {number}: {error}")
        sink.flush()
    for told in floor.end():
        sink.write(json_module.dumps(told, separators=(",", ":")) + "\n")
    sink.flush()
    if wrong:
        note(f"{counted(wrong, 'line')} changed nothing.")
    return _WRONG if wrong else 0


# ---- recordings


@app.command(
    help_epilogue="""Examples:

    isocast floor replay AAPL_2012-06-21_34200000_37800000_message_50.csv.gz

    isocast floor replay 01302019.NASDAQ_ITCH50.gz --rule midpoint --json

    isocast floor replay orders.csv --rule batch --tick 0.01 --token-ms 100

A table of orders has columns id, side, price, quantity, and perhaps kind (order, cancel, replace), symbol, account,
immediate, token, time_ns. Exit code: 0 replayed, 2 the file cannot be read.
"""
)
def replay(
    file: Path,
    /,
    *,
    rule: str = "resting",
    tick: str = "0.0001",
    lot: str = "1",
    token_ms: _Millis = 20.0,
    limit: Count | None = None,
    choice: FeedChoice = AS_THE_FILES_SAY,
    json: Flag = False,
) -> int:
    """Send recorded order flow through a rule, offline: what trades, and whether the recording kept price and time.

    Parameters
    ----------
    file
        LOBSTER messages, ITCH 5.0, a capture, DBN or event records; a table of orders in CSV or Parquet; or the order
        flow of the matching-engine benchmark.
    rule
        Whose price a trade gets: resting, buyer, seller or midpoint; or batch: an auction after every token.
    tick
        The smallest step of a price.
    lot
        The smallest step of a quantity.
    token_ms
        How long a token is: with --rule batch, the time between two auctions.
    limit
        Replay no more than so many events of a feed.
    json
        Print one JSON object instead of text.
    """
    from isocast.runtime.client.floor_replay import (
        RULES,
        FloorReplay,
        OrderFileReplay,
        is_benchmark_flow,
        is_order_file,
    )

    if rule not in RULES:
        problem = f'"{rule}" is not one of {", ".join(RULES)}{suggestion(rule, RULES)}'
        raise ConfigurationError("command line", "--rule", problem)
    if not file.is_file():
        raise ConfigurationError("command line", str(file), "is no file")
    token_ns = round(token_ms * 1_000_000)
    began = monotonic()
    if is_benchmark_flow(file):
        stats = _replay_flow(FloorReplay(rule, token_ns=token_ns), file, quiet=json)
    elif choice.format is None and choice.mapping is None and is_order_file(file):
        symbol = choice.symbol or "X"
        table = OrderFileReplay(rule, tick=tick, lot=lot, token_ns=token_ns, symbol=symbol)
        stats = _replay_table(table, file, quiet=json)
    else:
        whole_tick, whole_lot = _whole_steps(tick, lot)
        feed = FloorReplay(rule, tick=whole_tick, lot=whole_lot, token_ns=token_ns)
        stats = _replay_feed(feed, file, choice, limit, json)
    _show_replay(stats, file, rule, monotonic() - began, json=json)
    return 0


def _whole_steps(tick: str, lot: str) -> tuple[int, int]:
    from isocast.terms.instruments import PLAIN, to_whole

    try:
        return to_whole(tick, PLAIN.price), to_whole(lot, PLAIN.quantity)
    except ValueError as reason:
        raise ConfigurationError("command line", "--tick, --lot", str(reason)) from None


def _replay_flow(replayed: FloorReplay, file: Path, *, quiet: bool) -> ReplayStats:
    from isocast.runtime.client.floor_replay import read_benchmark_flow

    with _patiently("messages", 0, quiet=quiet) as reach:
        for events in read_benchmark_flow(file):
            replayed.take_array(events, "X")
            reach(replayed.stats.events)
    return replayed.finish()


def _replay_table(replayed: OrderFileReplay, file: Path, *, quiet: bool) -> ReplayStats:
    from isocast.runtime.client.floor_replay import read_order_file

    with _patiently("rows", 0, quiet=quiet) as reach:
        for rows in read_order_file(file):
            replayed.take(rows)
            reach(replayed.stats.events)
    return replayed.finish()


def _replay_feed(
    replayed: FloorReplay,
    file: Path,
    choice: FeedChoice,
    limit: int | None,
    quiet: bool,  # noqa: FBT001 - private
) -> ReplayStats:
    from isocast.cli.feed_text import feed_options
    from isocast.runtime.client.feed_files import FeedFile

    feed = FeedFile(file, feed_options(None, choice))
    left = limit
    with _patiently("bytes", feed.size, quiet=quiet) as reach:
        for block in feed.blocks():
            replayed.take(block if left is None else block[:left])
            left = None if left is None else left - len(block[:left])
            reach(feed.position)
            if left == 0:
                break
    return replayed.finish()


def _show_replay(stats: ReplayStats, file: Path, rule: str, seconds: float, *, json: bool) -> None:
    def share(part: int) -> float | None:
        return round(part / stats.executions, 4) if stats.executions else None

    found = {
        "file": str(file),
        "rule": rule,
        "events": stats.events,
        "tokens": stats.tokens,
        "orders": stats.orders,
        "cancels": stats.cancels,
        "replaces": stats.replaces,
        "trades": stats.trades,
        "volume": stats.volume,
        "value": stats.value,
        "refused": dict(stats.refused),
        "skipped": dict(stats.skipped),
        "executions": stats.executions,
        "at_best_price": share(stats.at_best),
        "at_fifo_head": share(stats.at_head),
        "as_recorded": share(stats.as_recorded),
        "unknown_executions": stats.unknown_executions,
        "seconds": round(seconds, 3),
    }
    if json:
        show_json(found)
        return
    say(f"{file.name} under the rule {rule}: {counted(stats.events, 'event')} in {seconds:,.1f} s")
    rows = [
        ("orders", stats.orders),
        ("cancels", stats.cancels),
        ("replaces", stats.replaces),
        ("trades", stats.trades),
    ]
    rows += [("volume", stats.volume)]
    rows += [(f"refused: {why}", count) for why, count in stats.refused.most_common()]
    rows += [(f"left out: {kind}", count) for kind, count in stats.skipped.most_common()]
    show_table("What came of it", ("what", "count"), [(name, figure(count)) for name, count in rows])
    if stats.executions:
        say(f"The recording has {counted(stats.executions, 'execution')} of orders that it shows:")
        say(f"  {share(stats.at_best):.2%} at the best price of its book")
        say(f"  {share(stats.at_head):.2%} at the head of the queue there")
        say(f"  {share(stats.as_recorded):.2%} would have hit the same order at the same price under this rule")
    if stats.unknown_executions:
        say(f"{counted(stats.unknown_executions, 'execution')} of orders from before the recording were left out.")


# ---- journals


@app.command(
    help_epilogue="""Examples:

    isocast floor verify data/london/journal --floor XISO

    isocast floor verify data/london/journal --roster keys/roster.bin --json

Exit code: 0 every report says what the sequence gives, 1 one differs, a rule is broken, or with --roster a correction
is not signed by two operators, 2 there is no journal, no floor in it, or no roster.
"""
)
def verify(journal: Path, /, *, floor: str | None = None, roster: Rosters = (), json: Flag = False) -> int:
    """Compute every trade again from the sequence in a journal, and compare it with what the arbiters reported.

    Each trade is also judged by rules that are stated apart from the matching: price, then time (T4), the path of every
    order's reports (T6), sealed bids (T7).

    Parameters
    ----------
    journal
        A site's journal, from the first sequence on. It may be in use.
    floor
        The floor's code, such as XISO; the only one in the journal, if left out.
    roster
        Check the signatures of corrected trades again by this roster. Repeat it where there were several.
    json
        Print one JSON object instead of text.
    """
    from isocast.runtime.market.roster_files import read_roster_file

    rosters = [read_roster_file(path) for path in roster]
    followed = _floor_in(journal, floor)
    with _patiently("sequences", followed.next_sequence, quiet=json) as reach:
        verdict = followed.verify(reach, rosters)
    _insist_on_floor(journal, followed)
    if json:
        show_json(_verdict_as_json(verdict))
    else:
        _show_verdict(verdict)
    return 0 if verdict.is_equal else _WRONG


def _verdict_as_json(verdict: FloorVerdict) -> dict[str, object]:
    from dataclasses import asdict

    found = asdict(verdict)
    found["differences"] = [one._asdict() for one in verdict.differences]
    found["breaches"] = [one._asdict() for one in verdict.breaches]
    found["unsigned"] = [one._asdict() for one in verdict.unsigned]
    found["unchecked"] = verdict.unchecked
    found["equal_reports"] = found.pop("equal")
    return {"is_equal": verdict.is_equal, **found}


def _show_verdict(verdict: FloorVerdict) -> None:
    tokens, events = counted(verdict.steps, "token"), counted(verdict.events, "event")
    say(f"Floor {verdict.floor}: {tokens} with {events}, {counted(verdict.trades, 'trade')} of {verdict.volume:,}.")
    say(f"State after token {verdict.token:,}: {verdict.state}")
    said = f"{verdict.equal:,} equal, {verdict.brief:,} with the state alone"
    say(f"{counted(verdict.reports, 'report')} compared: {said}.")
    say(f"Trades are confirmed up to number {verdict.confirmed:,}.")
    if verdict.undecodable:
        say(f"{counted(verdict.undecodable, 'message')} of the floor's topic are no events, and change nothing.")
    if verdict.unreadable:
        say(f"{counted(verdict.unreadable, 'message')} of the reports' topic are no reports.")
    if verdict.unreported:
        what = counted(verdict.unreported, "token")
        say(f"{what} with trades without their report, the first is token {verdict.first_unreported:,}.")
    _show_corrections(verdict)
    if verdict.is_equal:
        say("EQUAL: no report says anything else than the sequence, and no trade breaks price, then time.")
        return
    if verdict.breaches:
        many = counted(len(verdict.breaches), "breach", "breaches")
        say(f"BROKEN: what the sequence gives here is not by the rules: {many}.")
        broken = [(one.property, f"{one.token:,}", one.rule, one.text) for one in verdict.breaches[:_DIFFERENCES_SHOWN]]
        show_table("Breaches", ("property", "token", "rule", "what"), broken)
    if not verdict.differences:
        return
    first = verdict.differences[0]
    say(f"DIFFERENT: {counted(len(verdict.differences), 'report')}; the first is about token {first.token:,}.")
    rows = [
        (f"{one.token:,}", f"{one.sequence:,}", one.what, one.here, one.reported)
        for one in verdict.differences[:_DIFFERENCES_SHOWN]
    ]
    show_table("Differences", ("token", "report at", "what", "here", "reported"), rows)


def _show_corrections(verdict: FloorVerdict) -> None:
    """Who signed what was corrected; and what a journal and a roster cannot tell."""
    if verdict.unchecked:
        many = counted(verdict.unchecked, "correction")
        say(f"{many} whose signatures were not checked again; receivers did at release. --roster FILE does here.")
    if verdict.signed:
        say(
            f"{counted(verdict.signed, 'correction')} signed by two operators of a roster. Not checked: whether the"
            " market's file names them among the floor's correctors, and when that roster came into force."
        )
    if verdict.unsigned:
        say(f"UNSIGNED: {counted(len(verdict.unsigned), 'correction')} without the signatures of two operators.")
        rows = [
            (f"{one.trade:,}", str(one.version), f"{one.token:,}", f"{one.sequence:,}", one.fault)
            for one in verdict.unsigned[:_DIFFERENCES_SHOWN]
        ]
        show_table("Corrections", ("trade", "version", "token", "sequence", "why"), rows)


@app.command(
    help_epilogue="""Examples:

    isocast floor book data/london/journal

    isocast floor book data/london/journal --token 5000 --symbol ISO --levels 5 --json

It begins with the state that the site keeps beside its journal, where a report in the sequence names that state's hash;
otherwise, and with --whole, with the first message. It says with which.

Exit code: 0 shown, 2 there is no journal, or no floor in it.
"""
)
def book(
    journal: Path,
    /,
    *,
    floor: str | None = None,
    token: _Token | None = None,
    symbol: str | None = None,
    levels: Count = _LEVELS_SHOWN,
    whole: Flag = False,
    json: Flag = False,
) -> int:
    """Show the books of a floor as they stand at the end of a journal, or after a token.

    Parameters
    ----------
    journal
        A site's journal, from the first sequence on. It may be in use.
    floor
        The floor's code, such as XISO; the only one in the journal, if left out.
    token
        After this one; at the end, if left out.
    symbol
        Only this one.
    levels
        So many prices of each side.
    whole
        Compute it from the first message on, also where a state is kept that the sequence vouches for.
    json
        Print one JSON object instead of tables.
    """
    from isocast.floor.state import state_hash

    followed = _floor_in(journal, floor, is_whole=whole, last_token=token)
    with _patiently("sequences", followed.next_sequence, quiet=json) as reach:
        for _ in followed.steps(token, reach):
            pass
    _insist_on_floor(journal, followed)
    symbols = followed.floor.symbols
    if symbol is not None and symbol not in symbols:
        rule = f'"{symbol}" is not one of {", ".join(symbols) or "none"}'
        raise ConfigurationError("command line", "--symbol", rule)
    wanted = symbols if symbol is None else {symbol: symbols[symbol]}
    found = {name: _book_rows(state, levels) for name, state in wanted.items()}
    state = state_hash(followed.floor).hex()
    if json:
        books = {
            name: {
                "phase": str(wanted[name].phase),
                "reference": _units(name, wanted[name].reference),
                **{side: [[*row] for row in rows] for side, rows in sides.items()},
            }
            for name, sides in found.items()
        }
        said = {"token": followed.floor.token, "state": state, "computed_behind_token": followed.begun_at}
        show_json({**said, "symbols": books})
        return 0
    say(f"After token {followed.floor.token:,}, state {state}")
    say(_computed_from(followed))
    for name, sides in found.items():
        headers = ("orders", "quantity", "bid", "ask", "quantity", "orders")
        pairs = zip_longest(sides["buys"], sides["sells"], fillvalue=("", "", ""))
        rows = [tuple(figure(cell) for cell in (*reversed(bid), *ask)) for bid, ask in pairs]
        show_table(f"{name}: {wanted[name].phase}, last {_units(name, wanted[name].reference) or '-'}", headers, rows)
    return 0


def _computed_from(followed: JournalFloor) -> str:
    if not followed.begun_at:
        return f"Floor {followed.code}, computed from the first message on."
    kept = f"the state kept after token {followed.begun_at:,}, whose hash a report in the sequence names"
    return f"Floor {followed.code}, computed from {kept}."


def _book_rows(state: SymbolState, levels: int) -> dict[str, list[tuple[str, int, int]]]:
    """Price, quantity and number of orders of each side's best levels."""
    found = {}
    for name, side in (("buys", state.book.buys), ("sells", state.book.sells)):
        found[name] = [
            (
                "market" if level[0].is_market else str(_units(state.terms.symbol, level[0].price)),
                sum(order.shown for order in level),
                len(level),
            )
            for level in islice(side.levels(), levels)
        ]
    return found


@app.command(
    help_epilogue="""Examples:

    isocast floor trades data/london/journal

    isocast floor trades data/london/journal --symbol ISO --limit 20 --json

    isocast floor trades data/london/journal --last 20

Exit code: 0 shown, 2 there is no journal, or no floor in it.
"""
)
def trades(
    journal: Path,
    /,
    *,
    floor: str | None = None,
    token: _Token | None = None,
    symbol: str | None = None,
    limit: Count | None = None,
    last: Count | None = None,
    json: Flag = False,
) -> int:
    """List the trades of a floor, computed from the sequence in a journal, and how each stands.

    A trade is tentative, confirmed, corrected or void; the price and the quantity are those at which it was made.

    Parameters
    ----------
    journal
        A site's journal, from the first sequence on. It may be in use.
    floor
        The floor's code, such as XISO; the only one in the journal, if left out.
    token
        Up to this one; to the end, if left out.
    symbol
        Only this one.
    limit
        No more than so many, the first ones.
    last
        No more than so many, the newest ones. Where there are as many behind the state that the site keeps, and a
        report in the sequence names that state's hash, nothing before it is computed.
    json
        Print a JSON object on each line instead of a table.
    """
    if limit is not None and last is not None:
        raise ConfigurationError("command line", "--last", "say --limit or --last, not both")
    followed = _floor_in(journal, floor, is_whole=last is None, last_token=token)
    with _patiently("sequences", followed.next_sequence, quiet=json) as reach:
        found = followed.trades(token, reach, limit=limit, symbol=symbol)
        if last is not None and followed.begun_at and len(found) < last:
            found = _floor_in(journal, followed.code).trades(token, reach, symbol=symbol)
    _insist_on_floor(journal, followed)
    found = found if last is None else found[-last:]
    if json:
        for one in found:
            say(json_module.dumps(_trade_as_json(one)))
        return 0
    headers = ("trade", "token", "symbol", "price", "quantity", "buy", "sell", "", "state")
    rows = [
        (
            f"{one.trade.number:,}",
            f"{one.token:,}",
            one.trade.symbol,
            str(_units(one.trade.symbol, one.trade.price)),
            f"{one.trade.quantity:,}",
            str(one.trade.buy),
            str(one.trade.sell),
            "auction" if one.trade.is_auction else "own" if one.trade.is_own else "",
            _state_text(one),
        )
        for one in found
    ]
    show_table(f"Trades of {journal}", headers, rows)
    volume = sum((one.right or one.trade).quantity for one in found)
    say(f"{counted(len(found), 'trade')}, volume {volume:,}.")
    return 0


def _trade_as_json(one: SteppedTrade) -> dict[str, object]:
    trade, symbol = one.trade._asdict(), one.trade.symbol
    found = {"token": one.token, "time_ns": one.instant, **trade, "price": _units(symbol, one.trade.price)}
    found["state"] = one.state
    if one.right is not None:
        found["right_price"] = _units(symbol, one.right.price) if one.right.quantity else None
        found["right_quantity"] = one.right.quantity
    return found


def _state_text(one: SteppedTrade) -> str:
    if one.right is None or not one.right.quantity:
        return one.state
    return f"{one.state}: {one.right.quantity:,} at {_units(one.right.symbol, one.right.price)}"


def _units(symbol: str, price: int | None) -> str | None:
    return None if price is None else f"{scale_of(symbol).to_price(price):f}"


def _floor_in(journal: Path, code: str | None, *, is_whole: bool = True, last_token: int | None = None) -> JournalFloor:
    """The floor that a command means; ConfigurationError where that is not one."""
    from isocast.runtime.disk.floor_journal import JournalFloor, floors_of, kept_floors
    from isocast.runtime.disk.journal_segments import segment_files

    if not journal.exists() or not segment_files(journal):
        raise ConfigurationError("command line", str(journal), "there is no journal")
    if code is None:
        # To look for floors in a long journal takes as long as to compute one.
        kept = [] if is_whole else kept_floors(journal)
        floors = kept if len(kept) == 1 else floors_of(journal)
        if len(floors) != 1:
            rule = f"say which: {', '.join(floors)}" if floors else "there is no floor in this journal"
            raise ConfigurationError("command line", "--floor", rule)
        code = floors[0]
    return JournalFloor(journal, code, is_whole=is_whole, last_token=last_token)


def _insist_on_floor(journal: Path, followed: JournalFloor) -> None:
    """What was computed of no message at all is told for no floor."""
    from isocast.runtime.disk.floor_journal import floors_of

    code = followed.code
    if not followed.floor.token and code not in (floors := floors_of(journal)):
        rule = f"{code} has no message in this journal{suggestion(code, floors)}; it has {', '.join(floors) or 'none'}"
        raise ConfigurationError("command line", "--floor", rule)


@contextmanager
def _patiently(what: str, total: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Progress, from the moment on when it has taken two seconds."""
    began = monotonic()
    with ExitStack() as stack:
        shown: list[Progress] = []

        def reach(done: int) -> None:
            if not shown and monotonic() - began >= _PATIENCE_S:
                shown.append(stack.enter_context(Progress(what, max(total, done), quiet=quiet)))
            for progress in shown:
                progress.reach(done)

        yield reach
