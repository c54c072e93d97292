"""`isocast listen`: the events of a market as they are released, for people and for programs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import App, Parameter

from isocast.cli.options import Config, Count, Flag, Seconds
from isocast.cli.render import EVENT_COLUMNS, in_columns, line, note
from isocast.runtime.operate import shutdown
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.cli.listen_options import StripeChoice
    from isocast.runtime.client.listener import Conflict, Listener
    from isocast.runtime.client.received import ReceivedBatch

__all__ = ["listen", "tell_silence", "until_first"]

_EXAMPLES = """Examples:

    isocast listen --config market.toml

    isocast listen --config market.toml --as desk --latest

    isocast listen --config market.toml --from beginning --count 1000 --json > events.jsonl

    isocast listen --config market.toml --symbols ISO,CAST

    isocast listen --config market.toml --topics quiz.buzzer --from beginning

    isocast listen --config market.toml --package desk.package

    isocast listen --config market.toml --stripes 0,1 --from 0:1200,1:980 --unmerged

Exit code 1 means that two lines carried different contents of one message: the first copy was shown, and each conflict
was told on standard error and, with --json, as an object {"conflict": …}.
"""

_Rows: TypeAlias = "Iterable[Mapping[str, object]]"
_Columns: TypeAlias = "Mapping[str, int]"

_CONFLICTS = 1
"""The exit code when lines contradicted each other."""
_PATIENCE_S = 2.0
"""Without a line for so long, something is wrong."""
_COLUMNS = {"stripe": 6, "sequence": 10, "released": 15, **EVENT_COLUMNS}
_UNKNOWN = "–"
"""When something was released that only a snapshot told of."""
_STYLES = {"buy": "green", "sell": "red"}


listen = App(name="listen", help_epilogue=_EXAMPLES)


@listen.default
def _command(  # noqa: PLR0913 - what, from where, until when, how
    *,
    config: Config = None,
    name: Annotated[str | None, Parameter(name=["--as", "--name"])] = None,
    latest: Flag = False,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    stripes: str | None = None,
    symbols: str | None = None,
    topics: str | None = None,
    unmerged: Flag = False,
    count: Count | None = None,
    seconds: Seconds | None = None,
    package: Path | None = None,
    secret_file: Path | None = None,
    json: Flag = False,
) -> int:
    """Listen to a running market, as a guest or as one of its customers, and print its events as they are released.

    Every message comes once and in sequence: what a line loses is repaired by the market's retransmit servers. With
    --latest only the newest event of each key is shown, without waiting. Ctrl-C ends it with a summary. Several stripes
    are merged into one sequence, by token instant, stripe and sequence, the same for every customer: nothing of an
    instant is shown before every stripe has passed it.

    Parameters
    ----------
    name
        Which customer of the file to be, with a share of its own at the doors; if left out, a guest, which needs the
        edge key and no seat.
    latest
        Only what is newest of each floor, symbol, kind and side, whatever grade the file gives the customer.
    from_
        Where to begin: now, beginning, snapshot, a time such as 2026-03-02T14:30:00Z, or a sequence (of several
        stripes 0:17,1:4). Now if left out; with --latest a snapshot.
    stripes
        Which stripes of the core to hear, such as 0,1; all if left out.
    symbols
        Show these symbols, such as ISO,CAST, and hear their stripes alone; a floor's own announcements are shown too.
    topics
        Show the opaque messages of these topics, such as quiz.buzzer,auction, and no events but those of --symbols. If
        neither is given, everything is shown.
    unmerged
        Show each stripe as it comes: a stripe that is late holds up no other.
    count
        End after so many events and opaque messages.
    seconds
        End after so long.
    package
        What the box office gave, of a market that sells its lines. Its secret is asked for.
    secret_file
        Read the package's secret from this file, of mode 0600, instead of asking.
    json
        Print one JSON object on each line instead of rows.
    """
    from isocast.runtime.watch.plain_structlog import import_structlog

    import_structlog()
    from isocast.cli.listen_options import package_given, read_choice, read_start
    from isocast.runtime.client.listener import Listener
    from isocast.runtime.market.file import open_market

    wanted = read_choice(stripes, symbols, topics)
    market = open_market(config)
    heard, printer = _Heard(), _Printer(as_json=json, stripes=len(market.stripes))

    def conflict(found: Conflict) -> None:
        heard.conflicts += 1
        printer.warn(found)

    def told(text: str) -> None:
        note(f"isocast: {text}")

    listener = Listener(
        market,
        name,
        latest=latest or None,
        start=read_start(from_),
        told=told,
        conflict=conflict,
        stripes=wanted.stripes,
        symbols=wanted.symbols,
        topics=wanted.topics,
        merged=not unmerged,
        subscription=package_given(market, package, secret_file),
    )
    shutdown.run(_listen(listener, heard, printer, wanted, count, seconds))
    note(f"isocast: {heard}")
    return _CONFLICTS if heard.conflicts else 0


@dataclass(slots=True)
class _Heard:
    """What was printed."""

    events: int = 0
    opaque: int = 0
    messages: int = 0
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    """First and last sequence, by stripe."""
    skipped: int = 0
    conflicts: int = 0

    @property
    def rows(self) -> int:
        """Events and opaque messages."""
        return self.events + self.opaque

    def take(self, batch: ReceivedBatch, rows: Sequence[Mapping[str, object]], *, is_whole: bool) -> None:
        """A batch, of which these rows were shown."""
        from isocast.runtime.client.message_rows import OPAQUE_KIND
        from isocast.runtime.client.received import BatchKind

        opaque = sum(1 for row in rows if row["kind"] == OPAQUE_KIND)
        self.opaque += opaque
        self.events += len(rows) - opaque
        last = batch.last_sequence if is_whole or not rows else int(str(rows[-1]["sequence"]))
        first, _ = self.spans.get(batch.stripe, (batch.first_sequence, 0))
        self.spans[batch.stripe] = first, last
        if batch.kind is BatchKind.MESSAGES:
            self.messages += batch.last_sequence - batch.first_sequence + 1

    def __str__(self) -> str:
        """A summary."""
        if not self.rows and not self.messages:
            return "no messages"
        several = len(self.spans) > 1
        spans = [
            (f"sequence {first:,}" if first == last else f"sequences {first:,} to {last:,}")
            + (f" of stripe {stripe}" if several else "")
            for stripe, (first, last) in sorted(self.spans.items())
        ]
        opaque = [counted(self.opaque, "opaque message")] if self.opaque else []
        text = ", ".join([counted(self.events, "event"), *opaque, *spans])
        if self.skipped:
            text += f"; {counted(self.skipped, 'message')} skipped"
        if self.conflicts:
            text += f"; {self.conflicts:,} CONFLICTS: lines carried different messages, the first copy was shown"
        return text


async def _listen(
    listener: Listener,
    heard: _Heard,
    printer: _Printer,
    wanted: StripeChoice,
    count: int | None,
    seconds: float | None,
) -> None:
    stop = asyncio.Event()
    with shutdown.stopping(stop.set, seconds=shutdown.LAST_WORDS_S, waits_for="its lines are closed"):
        async with listener:
            lines = ", ".join(listener.plan.lines)
            if len(listener.stripes) > 1:
                how = "merged" if listener.is_merged else "each as it comes"
                lines += f" in stripes {', '.join(map(str, listener.stripes))}, {how}"
            note(f"isocast: listening as {listener.plan.origin} ({listener.grade}) to {lines}; Ctrl-C ends it")
            printer.begin()
            try:
                printing = _print(listener, heard, printer, wanted, count)
                await until_first([printing, stop.wait()], [tell_silence(listener)], seconds)
            finally:
                heard.skipped = listener.counters.messages_skipped


async def until_first(
    work: Sequence[Coroutine[Any, Any, object]], beside: Sequence[Coroutine[Any, Any, object]], seconds: float | None
) -> None:
    """Let all run until one of `work` is done or the time is over, then end the others; raise what that one raised."""
    working = [asyncio.create_task(one) for one in work]
    others = [asyncio.create_task(one) for one in beside]
    done, _ = await asyncio.wait(working, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in (*working, *others):
        task.cancel()
        with suppress(asyncio.CancelledError):
            if task not in done:
                await task
    for task in done:
        await task


async def _print(listener: Listener, heard: _Heard, printer: _Printer, wanted: StripeChoice, count: int | None) -> None:
    async for whole in listener:
        batch = wanted.part(whole)
        total = len(batch) + len(batch.opaque)
        rows = list(islice(_rows(batch), None if count is None else count - heard.rows))
        printer.show(rows)
        heard.take(batch, rows, is_whole=len(rows) == total)
        if heard.rows == count:
            return


async def tell_silence(listener: Listener) -> None:
    """After a moment, why nothing is heard, if nothing is."""
    await asyncio.sleep(_PATIENCE_S)
    reason = listener.silence()
    if reason is not None:
        note(f"isocast: {reason}")


# ---- rows


def _rows(batch: ReceivedBatch) -> _Rows:
    """Events and opaque messages, in sequence."""
    if not batch.opaque:
        return _event_rows(batch)
    opaque = [{**one.fields(), "batch": batch.kind.value, "received_ns": batch.received_at} for one in batch.opaque]
    return merge(_event_rows(batch), opaque, key=itemgetter("sequence"))


def _event_rows(batch: ReceivedBatch) -> _Rows:
    from isocast.runtime.client.rows import fields_of

    columns = (batch.sequences, batch.instants, batch.releases, batch.events)
    for sequence, instant, release, event in zip(*[column.tolist() for column in columns], strict=True):
        yield {
            "stripe": batch.stripe,
            "sequence": sequence,
            "batch": batch.kind.value,
            "instant_ns": instant or None,
            "release_ns": release or None,
            "received_ns": batch.received_at,
            **fields_of(event, batch.names),
        }


class _Printer:
    """Writes rows in the form that suits whoever reads them."""

    def __init__(self, *, as_json: bool, stripes: int = 1) -> None:
        self._write = _write_json if as_json else _write_styled if sys.stdout.isatty() else _write_plain
        self._header = not as_json
        self._columns = {name: width for name, width in _COLUMNS.items() if name != "stripe" or stripes > 1}

    def begin(self) -> None:
        """The names of the columns, where there are columns."""
        if self._header:
            line(in_columns({name: name for name in self._columns}, self._columns))
            sys.stdout.flush()

    def warn(self, conflict: Conflict) -> None:
        """Always on standard error, and as an object among the others for a program."""
        note(f"isocast: {conflict}")
        if not self._header:
            from dataclasses import asdict

            _write_json([{"conflict": asdict(conflict)}], self._columns)
            sys.stdout.flush()

    def show(self, rows: _Rows) -> None:
        """Rows, at once."""
        self._write(rows, self._columns)
        sys.stdout.flush()


def _write_json(rows: _Rows, _: _Columns) -> None:
    from json import dumps

    for row in rows:
        line(dumps(row, ensure_ascii=False))


def _write_plain(rows: _Rows, columns: _Columns) -> None:
    for row in rows:
        line(in_columns(_cells(row), columns))


def _write_styled(rows: _Rows, columns: _Columns) -> None:
    from rich.console import Console
    from rich.text import Text

    text = Text()
    for row in rows:
        text.append(f"{in_columns(_cells(row), columns)}\n", style=_STYLES.get(str(row.get("side")), ""))
    if text:
        Console(soft_wrap=True).print(text, end="")


def _cells(row: Mapping[str, object]) -> dict[str, object]:
    released = row["release_ns"]
    cells = {**row, "released": _clock(released) if isinstance(released, int) else _UNKNOWN}
    if "topic" in row:
        return {**cells, "flags": _opaque_text(row)}
    flags = row["flags"]
    return {
        **cells,
        "side": "" if row["side"] == "none" else row["side"],
        "flags": " ".join(flags) if isinstance(flags, list) else "",
    }


def _opaque_text(row: Mapping[str, object]) -> str:
    """Topic, key and payload; what is not printable is escaped, so that no payload writes on the terminal."""
    parts = [str(row["topic"])]
    for name in ("key", "payload"):
        text = str(row.get(name, "")) if name in row else f"base64:{row[f'{name}_base64']}"
        parts.append(text if text.isprintable() else repr(text))
    return " ".join(filter(None, parts))


def _clock(instant: int) -> str:
    """Hours to microseconds, in UTC."""
    seconds, nanoseconds = divmod(instant, 1_000_000_000)
    minutes, second = divmod(seconds % 86_400, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}.{nanoseconds // 1_000:06}"
