"""`isocast tape`: the consolidated tape of all floors, live, from a journal, or from feeds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from isocast.cli.options import Count, Flag, MarketFile, Seconds
from isocast.cli.render import line, note, show_json
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.cli.tape_live import TapeChoice
    from isocast.runtime.client.listener import Start
    from isocast.ticker.tape import Tape, TapeDigest

__all__ = ["tape"]

_EXAMPLES = """Examples:

    isocast tape --config market.toml --name desk

    isocast tape --config market.toml --symbols ISO,CAST --json

    isocast tape --journal data/london/journal --summary

    isocast tape --journal data/london/journal --at 2026-03-02T14:30:00Z --symbols ISO

    isocast tape --journal data/london/journal data/london.s1/journal --summary

    isocast tape --feed day.parquet --summary --json

    isocast tape --feed S013019-v50.txt.gz --symbols AAPL --depth 5

What floors publish and nobody can believe is counted and named by --summary; it is no reason to end. Exit code 2 means
bad input, 3 that the machine refused.
"""


tape = App(name="tape", help_epilogue=_EXAMPLES)


@tape.default
def _command(  # noqa: PLR0913 - where from, what, until when, how
    *,
    config: MarketFile = None,
    name: Annotated[str | None, Parameter(name=["--name", "--as"])] = None,
    journal: Annotated[list[Path] | None, Parameter(negative="", consume_multiple=True)] = None,
    feed: Annotated[list[Path] | None, Parameter(negative="", consume_multiple=True)] = None,
    day: str | None = None,
    symbols: str | None = None,
    floors: str | None = None,
    depth: Count | None = None,
    summary: Flag = False,
    at: str | None = None,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    stripes: str | None = None,
    unmerged: Flag = False,
    snapshot: Path | None = None,
    count: Count | None = None,
    seconds: Seconds | None = None,
    json: Flag = False,
) -> int:
    """Show the tape: for each symbol the last sale, best bid and offer of all floors, volume and status.

    Best prices are those of quotes, and of the books of floors that publish orders instead; a book that has missed
    something is marked incomplete. Corrections and cancels of earlier trades are applied; what floors publish and
    nobody can believe is counted. Live, it listens as one of the market's customers, from the beginning of what is
    kept, until Ctrl-C. Several stripes are one sequence, by token instant, stripe and sequence, and its messages are
    numbered from 1 on.

    Parameters
    ----------
    config
        The file of a running market.
    name
        Which customer of the file to be; if left out, a guest.
    journal
        A journal, or one segment of it, instead of a market; of several stripes one of each. It may be in use.
    feed
        Files of feeds instead of a market; several are merged in the order of time.
    day
        The day of feeds, such as 2019-01-30, if their names do not say.
    symbols
        Only these, with commas between them.
    floors
        Only what these floors publish, with commas between them.
    depth
        Show books instead, so many levels of each side: the displayed orders of all floors, put together by price.
    summary
        Print the end-of-day summary of each symbol and floor, and what was wrong.
    at
        The state as of a sequence (of feeds: an event), or of a time such as 2026-03-02T14:30:00Z: what was released
        by then, of feeds what had happened.
    from_
        Live, where to begin: beginning, now, snapshot, a time, or a sequence (of several stripes 0:17,1:4).
    stripes
        Live: which stripes of the core to hear, such as 0,1; if left out those of the symbols, or all.
    unmerged
        Live: take each stripe as it comes, in no common order; one that is late holds up no other.
    snapshot
        A file: begin with the tape that it holds, if it exists, and write the tape to it in the end.
    count
        End after so many events, and the rest of their message.
    seconds
        Live: end after so long.
    json
        Print JSON: an object on each line, for each symbol that changed; with --summary one object.
    """
    from isocast.runtime.watch.plain_structlog import import_structlog

    import_structlog()
    from isocast.cli.listen_options import read_choice
    from isocast.cli.tape_live import Moment, TapeChoice, load_snapshot, save_snapshot
    from isocast.runtime.market.finding import find_market

    if not journal and not feed:
        config = find_market(config)
    if [config is not None, bool(journal), bool(feed)].count(True) != 1:
        raise ConfigurationError("command line", "tape", "give one of --config, --journal and --feed")
    if config is None and (unmerged or any(value is not None for value in (name, from_, stripes, seconds))):
        rule = "--name, --from, --stripes, --unmerged and --seconds are for a running market"
        raise ConfigurationError("command line", "tape", rule)
    if config is not None and at is not None:
        raise ConfigurationError(
            "command line", "--at", "is for journals and feeds: a running market is shown as it is now"
        )
    if depth is not None and summary:
        raise ConfigurationError("command line", "--depth", "is not for --summary, which is of the day")
    moment = Moment.read(at)
    wanted = TapeChoice.read(symbols, floors, count, depth)
    shown, is_new = load_snapshot(snapshot)
    digest = _new_digest() if summary and is_new else None
    if config is not None:
        from isocast.cli.tape_live import watch

        chosen = read_choice(stripes, None).stripes
        start = _start(from_, shown)
        watch(
            shown,
            wanted,
            config,
            name,
            start,
            seconds,
            as_json=json and not summary,
            stripes=chosen,
            merged=not unmerged,
            digest=digest,
        )
    else:
        from isocast.cli.tape_live import read_feeds, read_journal

        if journal and (len(journal) > 1 or shown.positions):
            from isocast.cli.tape_live import read_journals

            read_journals(journal, shown, moment, wanted, digest)
        elif journal:
            read_journal(journal[0], shown, moment, wanted, digest)
        else:
            read_feeds(feed or [], shown, moment, wanted, digest, day=day, quiet=json)
    save_snapshot(snapshot, shown)
    return _print(shown, wanted, digest, summary=summary, as_json=json, live=config is not None)


def _new_digest() -> TapeDigest:
    from isocast.ticker.tape import TapeDigest

    return TapeDigest()


def _start(text: str | None, shown: Tape) -> Start:
    """Where to begin to listen: behind the snapshot, if there is one."""
    from isocast.cli.listen_options import read_start

    given = read_start(text)
    if given is not None:
        return given
    if shown.positions:
        return {stripe: last + 1 for stripe, last in shown.positions.items()}
    return shown.sequence + 1 if shown.sequence else "beginning"


def _print(
    shown: Tape, wanted: TapeChoice, digest: TapeDigest | None, *, summary: bool, as_json: bool, live: bool
) -> int:
    from isocast.cli.tape_view import (
        show_depth,
        show_summary,
        show_symbols,
        summary_as_json,
        view_as_json,
    )
    from isocast.runtime.client.live_tape import depth_fields
    from isocast.ticker.views import depth_views, symbol_views

    if summary:
        if as_json:
            show_json(summary_as_json(shown, wanted.symbols, wanted.floors, digest))
        else:
            show_summary(shown, wanted.symbols, wanted.floors, digest)
        return 0
    if as_json:
        from json import dumps

        if wanted.depth is not None and not live:
            for depth in depth_views(shown, wanted.depth, wanted.symbols, wanted.floors):
                line(dumps({"sequence": shown.sequence, **depth_fields(depth)}))
        elif not live:
            for view in symbol_views(shown, wanted.symbols, wanted.floors):
                line(dumps(view_as_json(view, shown.sequence)))
    elif not live or not sys.stdout.isatty():
        if wanted.depth is not None:
            show_depth(shown, wanted.depth, wanted.symbols, wanted.floors)
        else:
            show_symbols(shown, wanted.symbols, wanted.floors)
    if shown.faults.total and not as_json:
        note(f"isocast: {counted(shown.faults.total, 'event')} in doubt: --summary names them")
    return 0
