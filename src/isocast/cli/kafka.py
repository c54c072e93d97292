"""`isocast kafka`: feed a market from a topic, and copy what it releases to one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from isocast.cli.options import Config, Count, Flag, Seconds
from isocast.cli.render import figure, line, note, show_json
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.runtime.client.kafka import KafkaCounts, KafkaPlace

__all__ = ["app"]

Option = Annotated[list[str] | None, Parameter(name="--option", negative="")]

app = App(
    name="kafka",
    help="Feed a market from a Kafka topic, and copy what it releases to one.",
    help_epilogue="Example:\n\n    isocast kafka out --brokers localhost:9092 --topic tape\n",
)


@app.command(
    name="in",
    help_epilogue="""Examples:

    isocast kafka in --brokers localhost:9092 --topic orders --source floor

    isocast kafka in --brokers localhost:9092 --topic orders --source floor --until-end --json

Exit code: 0 it was stopped or is done, 2 bad input, 3 no broker answers.
""",
)
def take_in(  # noqa: PLR0913 - where from, where to, until when
    *,
    brokers: str,
    topic: str,
    config: Config = None,
    source: str,
    group: str | None = None,
    skip_bad: Flag = False,
    until_end: Flag = False,
    option: Option = None,
    count: Count | None = None,
    seconds: Seconds | None = None,
    json: Flag = False,
) -> int:
    """Publish the records of a topic at a source, each once and in the order of its partition.

    A record is a JSON object, or a list of them, with the columns of `isocast publish`, or event records of 48 bytes.
    Started again it goes on behind the last record that the source has.

    Parameters
    ----------
    brokers
        Where Kafka is: host:port, several with commas between them.
    topic
        The topic to read.
    source
        The source of the market at which to publish.
    group
        The consumer group that keeps the offsets; isocast-MARKET-SOURCE if left out.
    skip_bad
        Count records that are no events and pass over them, instead of ending.
    until_end
        End with the last record that is there now.
    option
        A setting of librdkafka such as security.protocol=SSL; may be repeated.
    count
        End after so many records.
    seconds
        End after so long.
    json
        Print the final counts as one JSON object.
    """
    from isocast.runtime.client.kafka import KafkaIn
    from isocast.runtime.market.file import open_market

    market = open_market(config)
    feeding = KafkaIn(
        _place(brokers, topic, option),
        market,
        source,
        group=group or f"isocast-{market.name}-{source}",
        skips_bad=skip_bad,
        told=_told,
    )
    note(f"isocast: {topic} of {brokers} is published at {source}; Ctrl-C ends it")
    shutdown.run(_until_stopped(feeding.run(count=count, until_end=until_end), seconds))
    _report(feeding.counts, "read", as_json=json)
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast kafka out --brokers localhost:9092 --topic tape

    isocast kafka out --brokers localhost:9092 --topic tape --as record --name desk

Exit code: 0 it was stopped or is done, 2 bad input, 3 no broker answers.
"""
)
def out(  # noqa: PLR0913 - where from, where to, until when
    *,
    brokers: str,
    topic: str,
    config: Config = None,
    name: str | None = None,
    as_: Annotated[Literal["json", "record"], Parameter(name="--as")] = "json",
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    option: Option = None,
    count: Count | None = None,
    seconds: Seconds | None = None,
    json: Flag = False,
) -> int:
    """Copy every event that the market releases to a topic, once and in the order of the sequence.

    A stripe is a partition; the key is the symbol. The header `isocast` of each record says its place,
    stripe:sequence:index: started again, the copy goes on behind the last record. Run one copy of a topic at a time.

    Parameters
    ----------
    brokers
        Where Kafka is: host:port, several with commas between them.
    topic
        The topic to write; it must exist, with a partition for each stripe of the market.
    name
        The customer of the file to be; if left out, the first that nobody is yet.
    as_
        What a value is: a JSON object, or the event record of 48 bytes.
    from_
        Where a topic without records begins: beginning (if left out), now, a time, or a sequence (of several stripes
        0:17,1:4).
    option
        A setting of librdkafka such as security.protocol=SSL; may be repeated.
    count
        End after so many records: events and opaque messages.
    seconds
        End after so long.
    json
        Print the final counts as one JSON object.
    """
    from isocast.cli.listen_options import read_start
    from isocast.runtime.client.kafka import KafkaOut
    from isocast.runtime.market.file import open_market

    market = open_market(config)
    place = _place(brokers, topic, option)
    copying = KafkaOut(place, market, name, as_json=as_ == "json", start=read_start(from_), told=_told)
    note(f"isocast: what {market.name} releases goes to {topic} of {brokers}; Ctrl-C ends it")
    shutdown.run(_until_stopped(copying.run(count=count), seconds))
    _report(copying.counts, "written", as_json=json)
    return 0


def _place(brokers: str, topic: str, options: list[str] | None) -> KafkaPlace:
    from isocast.runtime.client.kafka import KafkaPlace, insist_on_kafka

    insist_on_kafka()
    pairs = [option.partition("=") for option in options or ()]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise ConfigurationError("command line", "--option", f'"{name}" is not a setting such as acks=all')
    return KafkaPlace(brokers, topic, {name: value for name, _, value in pairs})


def _told(text: str) -> None:
    note(f"isocast: {text}")


async def _until_stopped(work: Coroutine[Any, Any, None], seconds: float | None) -> None:
    stop = asyncio.Event()
    with shutdown.stopping(stop.set, seconds=shutdown.LAST_WORDS_S, waits_for="Kafka has what was sent"):
        working, waiting = asyncio.create_task(work), asyncio.create_task(stop.wait())
        await asyncio.wait([working, waiting], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if working.done():
            working.result()
            return
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working


def _report(counts: KafkaCounts, word: str, *, as_json: bool) -> None:
    if as_json:
        show_json(asdict(counts))
        return
    known = f", {figure(counts.known)} there before" if counts.known else ""
    bad = f", {counted(counts.bad, 'record')} without events passed over" if counts.bad else ""
    opaque = f", {counted(counts.opaque, 'opaque message')}" if counts.opaque else ""
    line(f"{counted(counts.records, 'record')} {word}, {counted(counts.events, 'event')}{opaque}{known}{bad}.")
