"""A receiver's host: open, journal, line, in this order; and what it does when one of them cannot."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.ring.makers import EPOCH, Chain, following, founding
from tests.runtime.hosts.contexts import FLOOR, Surroundings, new_market, release_of, run, sealed
from tests.runtime.worlds import SMALL, World, eventually, market_file, trades

from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.corrections import (
    Correction,
    Signature,
    correction_said,
    correction_topic,
    encode_correction,
)
from isocast.floor.events import Directory, Event, Order, Phase, Trade
from isocast.ring.effects import (
    Collect,
    Diverged,
    EntryAppended,
    EntryCompleted,
    FairnessFaulted,
    LogReplaced,
    ReadJournal,
    Release,
    RingSuspected,
    SecondaryReturned,
    SecondaryStalled,
    SupportSilent,
)
from isocast.ring.inputs import JournalRead
from isocast.ring.ledger import LogEntry
from isocast.runtime.disk import journal as journal_module
from isocast.runtime.disk.journal import released_block
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.hosts.receiver import ReceiverHost
from isocast.runtime.market.model import Market
from isocast.runtime.market.roster_files import load_identity, load_roster
from isocast.terms.errors import JournalError, JournalFull, LocalProtocolError, TransportError
from isocast.terms.ids import operator_id
from isocast.terms.instants import NEVER, SECOND
from isocast.terms.market import Side
from isocast.wire.codec import PacketKind
from isocast.wire.journal_blocks import encode_block, view_block
from isocast.wire.opaque import OpaqueMessage, cut_opaque
from isocast.wire.packets import Data, ReleasedPacket, Suspicion
from isocast.wire.token_body import token_digest

RING = {name: SMALL[name] for name in ("a", "b", "c", "x", "floor")}
"""A ring of three with one source."""


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return new_market(tmp_path)


class Line:
    """Stands in for the sockets: what was sent, and how far the journal was then."""

    def __init__(self, host: ReceiverHost, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[tuple[int, ReleasedPacket]] = []
        self._host = host
        monkeypatch.setattr(host._channels, "to_line", self._take)  # noqa: SLF001

    def _take(self, packets: Sequence[ReleasedPacket]) -> None:
        messages = [packet for packet in packets if isinstance(packet, ReleasedPacket)]
        self.sent += [(self._host.journal.position.next_sequence, packet) for packet in messages]


def journalled(market: Market, name: str) -> list[tuple[int, bytes]]:
    """(sequence, payload) of everything released."""
    found: list[tuple[int, bytes]] = []
    for block in read_blocks(market.directory_of(name) / "journal"):
        found += zip(block.sequences, [message[3] for message in block.messages()], strict=True)
    return found


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch, host: ReceiverHost) -> Iterator[None]:
    """No room for this host's journal, half-way through a block."""
    write = journal_module._write_all  # noqa: SLF001

    def refuse(fd: int, pieces: Sequence[bytes], length: int, offset: int) -> None:
        if fd == host.journal._fd:  # noqa: SLF001
            os.pwrite(fd, b"".join(pieces)[: length // 2], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(fd, pieces, length, offset)

    with monkeypatch.context() as patched:
        patched.setattr(journal_module, "_write_all", refuse)
        yield


# ---- release


def test_a_release_is_opened_then_journalled_then_sent(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    around = Surroundings(market, "a")
    chain = Chain()

    async def work() -> None:
        host = ReceiverHost(around.context())
        line = Line(host, monkeypatch)
        host.perform(release_of(chain, sealed(market, 1), sealed(market, 2)), 0)
        host.perform(release_of(chain, sealed(market, 3)), 0)
        payloads = [trades(1, first_id=number).tobytes() for number in (1, 2, 3)]
        assert [(packet.sequence, packet.payload) for _, packet in line.sent] == list(enumerate(payloads, 1))
        assert [position for position, _ in line.sent] == [3, 3, 4], "the journal was ahead of the line"
        await host.stop()
        assert journalled(market, "a") == list(enumerate(payloads, 1))

    run(work)
    assert (around.counters.messages_released, around.counters.events_released) == (3, 3)
    assert around.alarms == []


def test_a_payload_that_cannot_be_opened_keeps_its_place_at_every_site(market: Market) -> None:
    """Its source sealed it wrongly: all sites find the same, and say so."""
    wrong = sealed(market, 2)
    wrong = type(wrong)(0, EPOCH, FLOOR, 2, 1, wrong.payload[:-1] + bytes([wrong.payload[-1] ^ 1]))
    journals = []
    for name in ("a", "b", "a2"):
        around, chain = Surroundings(market, name), Chain()

        async def work(around: Surroundings = around, chain: Chain = chain) -> None:
            host = ReceiverHost(around.context())
            host.perform(release_of(chain, sealed(market, 1), wrong, sealed(market, 3)), 0)
            await host.stop()

        run(work)
        journals.append(journalled(market, name))
        assert around.counters.unopened_payloads == 1
        assert around.codes == ["unopened"]
    assert journals[0] == journals[1] == journals[2]
    assert [payload for _, payload in journals[0]][1] == b""
    assert [sequence for sequence, _ in journals[0]] == [1, 2, 3]


def test_a_market_that_does_not_seal_releases_what_was_sent(tmp_path: Path) -> None:
    path = market_file(tmp_path, RING)
    path.write_text("seal = false\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    world = World(path)
    around = Surroundings(world.market, "a")

    async def work() -> None:
        host = ReceiverHost(around.context())
        message = sealed(world.market, 1)
        host.perform(release_of(Chain(), message), 0)
        await host.stop()
        assert journalled(world.market, "a") == [(1, message.payload)]

    run(work)


def test_what_is_late_is_counted_against_its_instant(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    around, chain = Surroundings(market, "a"), Chain()

    async def work() -> None:
        context = around.context()
        host, now = ReceiverHost(context), context.clock.now()
        monkeypatch.setattr(context.clock, "now", lambda: now)
        host.perform(release_of(chain, sealed(market, 1), due=now), 0)
        host.perform(release_of(chain, sealed(market, 2), due=now - 10 * SECOND), 0)
        await host.stop()

    run(work)
    assert (around.counters.late_releases, around.counters.early_releases) == (1, 0)
    assert around.counters.release_lateness.count == 2


def test_a_late_release_is_told_with_how_late_the_process_was(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who looks for the reason wants to know: was it held, or did this process come late to it?"""
    around, chain = Surroundings(market, "a"), Chain()
    allowed = market.timing.process_ns

    async def work() -> None:
        context = around.context()
        host, now = ReceiverHost(context), context.clock.now()
        monkeypatch.setattr(context.clock, "now", lambda: now)
        host.perform(release_of(chain, sealed(market, 1), due=now - allowed // 2), 0)
        host.driver.behind_ns = 7
        host.perform(release_of(chain, sealed(market, 2), due=now - 10 * SECOND), 0)
        await host.stop()

    with capture_logs() as told:
        run(work)
    (late,) = [entry for entry in told if entry["event"] == "released late"]
    assert (late["token"], late["sequence"], late["behind_ns"]) == (2, 2, 7)
    assert 10 * SECOND <= late["late_ns"] < 70 * SECOND


def test_a_full_disk_stops_the_release_before_the_line_hears_of_it(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    around, chain = Surroundings(market, "a"), Chain()

    async def work() -> None:
        host = ReceiverHost(around.context())
        line = Line(host, monkeypatch)
        host.perform(release_of(chain, sealed(market, 1)), 0)
        second = release_of(chain, sealed(market, 2))
        with full_disk(monkeypatch, host), pytest.raises(JournalFull, match="No space left"):
            host.perform(second, 0)
        assert [packet.sequence for _, packet in line.sent] == [1]
        host.perform(second, 0)
        assert [packet.sequence for _, packet in line.sent] == [1, 2]
        with pytest.raises(LocalProtocolError, match="has been released"):
            host.perform(second, 0)
        await host.stop()

    run(work)
    assert [sequence for sequence, _ in journalled(market, "a")] == [1, 2]


def test_what_came_from_another_archive_is_not_released_again(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may get over its backlog while its journal is being filled: neither comes twice."""
    around, chain = Surroundings(market, "a"), Chain()
    first, second, third = [release_of(chain, sealed(market, 2 * n - 1), sealed(market, 2 * n)) for n in (1, 2, 3)]

    async def work() -> None:
        host = ReceiverHost(around.context())
        line = Line(host, monkeypatch)
        # Another site released the second token in two steps, and the first of them has come.
        for release, count in ((first, 2), (second, 1)):
            block = released_block(release, 1, 0)
            part = replace(block, messages=block.messages[:count])
            host.fetcher._append(view_block(b"".join(encode_block(part).pieces)), 100)  # noqa: SLF001
        for release in (first, second, third):
            host.perform(release, 0)
        assert [packet.sequence for _, packet in line.sent] == [4, 5, 6]
        with pytest.raises(LocalProtocolError, match="has been released"):
            host.perform(third, 0)
        await host.stop()

    run(work)
    assert [sequence for sequence, _ in journalled(market, "a")] == [1, 2, 3, 4, 5, 6]


# ---- from the disk


def test_a_restart_goes_on_where_the_journal_ends(market: Market) -> None:
    around, chain = Surroundings(market, "a"), Chain()

    async def first_life() -> None:
        host = ReceiverHost(around.context())
        host.perform(release_of(chain, sealed(market, 1), sealed(market, 2)), 0)
        whole = release_of(chain, sealed(market, 3), sealed(market, 4))
        host.perform(type(whole)(EPOCH, whole.entry, whole.first_sequence, whole.messages[:1], 0), 0)
        await host.stop()

    async def second_life() -> tuple[int, int, int]:
        host = ReceiverHost(around.context())
        releaser = host.machine.receiver.releaser
        await host.stop()
        return releaser.released, releaser.offset, host.line.next_sequence

    run(first_life)
    assert run(second_life) == (1, 1, 4)


def test_what_cannot_be_opened_whole_leaves_nothing_open(market: Market) -> None:
    """The port is taken: the next attempt must not meet the locks of this one."""
    around, plan = Surroundings(market, "a"), market.node("a")

    async def work() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind((plan.address, plan.port))
            with pytest.raises(TransportError, match="another process listens there"):
                ReceiverHost(around.context())
        host = ReceiverHost(around.context())
        with pytest.raises(JournalError, match="another process writes this journal"):
            ReceiverHost(around.context())
        await host.stop()

    run(work)


# ---- what it tells


def test_suspicions_are_counted_and_named_but_coming_in_is_no_alarm(market: Market) -> None:
    around = Surroundings(market, "a")
    own, b = market.node("a").node, market.node("b").node

    async def work() -> None:
        host = ReceiverHost(around.context())
        host.perform(RingSuspected(5, own, Suspicion.OUTSIDE), 0)
        host.perform(RingSuspected(5, own, Suspicion.LOST), 0)
        assert around.alarms == []
        host._token_at = 1  # noqa: SLF001 - a token has come since the start
        host.perform(RingSuspected(6, b, Suspicion.UNRECOVERED), 0)
        await host.stop()

    run(work)
    assert around.codes == ["suspect-unrecovered-b"]
    assert "b is suspected (unrecovered) at token 6" in around.alarms[0][1]
    assert sum(around.counters.suspicions.values()) == 3


def test_that_the_ring_of_before_a_restart_is_over_is_no_alarm(market: Market) -> None:
    around = Surroundings(market, "a")
    own, b = market.node("a").node, market.node("b").node

    async def work() -> None:
        host = ReceiverHost(around.context())
        host.perform(RingSuspected(5, own, Suspicion.BEHIND), 0)
        host.perform(RingSuspected(6, b, Suspicion.UNRECOVERED), 0)
        await host.stop()

    run(work)
    assert around.alarms == []
    assert sum(around.counters.suspicions.values()) == 2


def test_the_rest_is_counted_named_or_passed_on(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    around = Surroundings(market, "a")
    a2 = market.node("a2").node
    collected: list[int] = []

    async def work() -> None:
        host = ReceiverHost(around.context())
        monkeypatch.setattr(host.store, "collected", collected.append)
        host.perform(FairnessFaulted(9), 0)
        host.perform(Collect(4), 0)
        host._after_step(0)  # noqa: SLF001 - when what it released is on its way
        host.perform(SecondaryStalled(1, a2, 3), 0)
        host.perform(SecondaryReturned(1, a2, 30), 0)
        host.perform(SupportSilent(7, 1), 0)
        await host.stop()

    run(work)
    assert around.counters.fairness_faults == 1
    assert collected == [4]
    assert around.codes == ["stalled-a2"]


def test_old_entries_are_read_and_given_to_the_machine_after_the_step(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    around = Surroundings(market, "a")
    entries = tuple(Chain().grow(3).entries)
    fed: list[Any] = []

    async def work() -> None:
        host = ReceiverHost(around.context())
        monkeypatch.setattr(host.store, "read", lambda first, last: entries[first - 1 : last])
        monkeypatch.setattr(host.driver, "feed", fed.append)
        host.perform(ReadJournal(7, 2, 3), 0)
        assert fed == []
        await asyncio.sleep(0)
        await host.stop()

    run(work)
    assert fed == [JournalRead(7, entries[1:3], first=2, oldest=1)]


def test_a_line_that_is_quiet_beats_and_a_node_without_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = {**RING, "b": {"role": "primary-receiver", "line": False}}
    market = new_market(tmp_path, nodes)

    async def work() -> None:
        context = Surroundings(market, "a").context()
        host, silent = ReceiverHost(context), ReceiverHost(Surroundings(market, "b").context())
        line = Line(host, monkeypatch)
        assert host.next_deadline() <= context.clock.now()
        now = context.clock.now()
        host.wake(now)
        assert [(packet.sequence, packet.count) for _, packet in line.sent] == [(1, 0)]
        assert host.next_deadline() > now
        assert silent.next_deadline() == NEVER
        await host.stop()
        await silent.stop()

    run(work)


# ---- in a ring


def test_a_full_disk_ends_the_node_with_an_alarm_and_room_lets_it_go_on_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, RING)) as world:
            await world.start()
            await world.publish("floor", trades(100))
            await eventually(lambda: all(len(world.ids(name)) == 100 for name in "abc"))
            broken = world.nodes.pop("b")
            host = broken.host
            assert isinstance(host, ReceiverHost)
            with full_disk(monkeypatch, host):
                await world.publish("floor", trades(100, first_id=101))
                await asyncio.wait_for(broken.stopping.wait(), 90)
                await broken.stop()
            assert isinstance(broken.failure, JournalFull)
            assert broken.counters.journal_alarms == 1
            assert [alarm.code for alarm in broken.monitor.alarms.list() if alarm.code == "disk-full"] == ["disk-full"]
            assert world.ids("b") == list(range(1, 101))
            await eventually(lambda: all(len(world.ids(name)) == 200 for name in "ac"))
            await world.start("b", ready=False)
            await world.publish("floor", trades(50, first_id=201))
            await eventually(lambda: all(len(world.ids(name)) == 250 for name in "abc"))
            assert world.released("a") == world.released("b") == world.released("c")

    run(work)


@pytest.mark.parametrize("name", ["b", "a2"])
def test_a_clock_that_is_proven_wrong_stops_releases_and_says_so_until_it_is_right(tmp_path: Path, name: str) -> None:
    nodes = {**RING, "a2": {"role": "secondary-receiver", "parent": "a", "backup": "c"}}

    async def work() -> None:
        async with World(market_file(tmp_path, nodes)) as world:
            await world.start()
            await world.publish("floor", trades(30))
            await eventually(lambda: len(world.ids(name)) == 30)
            site = world.nodes[name]
            host = site.host
            assert isinstance(host, ReceiverHost)
            host.driver.clock.offset_ns = 3 * SECOND
            await eventually(lambda: host.gauges().clock_trusted is False)
            assert "clock" in world.alarms(name)
            assert any("clock" in reason for reason in site.monitor.not_ready())
            before = world.ids(name)
            await world.publish("floor", trades(30, first_id=31))
            await eventually(lambda: len(world.ids("a")) == 60)
            assert world.ids(name) == before
            host.driver.clock.offset_ns = 0
            await eventually(lambda: len(world.ids(name)) == 60)
            assert site.counters.early_releases == 0
            assert world.released("a") == world.released(name)

    run(work)


def test_a_site_that_lost_its_log_says_so_and_takes_no_part(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, RING)) as world:
            await world.start("a", "b", "c", "x", "floor")
            await world.publish("floor", trades(10))
            await eventually(lambda: len(world.ids("c")) == 10)
            await world.stop("c")
            shutil.rmtree(world.market.directory_of("c") / "log")
            await world.start("c", ready=False)
            await world.publish("floor", trades(10, first_id=11))
            await eventually(lambda: all(len(world.ids(name)) == 20 for name in "ab"))
            lost = world.nodes["c"]
            assert "forgot" in world.alarms("c")
            for kind in (PacketKind.TOKEN, PacketKind.RECEIPT, PacketKind.JOIN):
                assert lost.counters.sent_of(kind) == 0
            assert len(world.ids("c")) == 10
            assert lost.monitor.not_ready()
            assert lost.failure is None
            await world.stop("c")
            await world.start("c", ready=False)  # What was forgotten stays forgotten.
            assert [alarm.code for alarm in world.nodes["c"].monitor.alarms.list()] == ["forgot"]

    run(work)


# ---- a floor whose tokens are cut off


def told_floor(market: Market, number: int, event: Event) -> Data:
    """A message of the source to the market's floor."""
    (payload,) = cut_opaque([OpaqueMessage(floor_topic("XISO"), encode_event(event))], 200)
    return sealed(market, number, payload)


def test_trades_of_released_tokens_that_a_ring_does_not_have_are_void_at_its_floor(tmp_path: Path) -> None:
    """As under the timed gate, or by force: the floor's site goes on by the ring's log, as every other site does."""
    floor: dict[str, dict[str, object]] = {
        "floor.XISO": {"sources": ["floor"]},
        "[floor.XISO.symbols]": {"symbol": "ISO"},
    }
    market = new_market(tmp_path, RING, floor)
    around = Surroundings(market, "a")
    opening = Directory("ISO", phase=Phase.OPEN)
    sell, buy = Order(1 << 32, 1, "ISO", Side.SELL, 9, 100), Order(2 << 32, 2, "ISO", Side.BUY, 5, 100)
    dear = Order(3 << 32, 3, "ISO", Side.BUY, 7, 101)

    def hear(host: ReceiverHost, entry: LogEntry, *, is_out: bool = True) -> None:
        """A token is complete, and released; without `is_out` its sequences went out with others."""
        releaser, token = host.machine.receiver.releaser, entry.token
        host.perform(EntryCompleted(token.epoch, entry, token_digest(token)), 0)
        if is_out:
            host.perform(Release(token.epoch, entry, token.first_sequence, entry.messages, 0), 0)
            releaser.next_sequence = token.first_sequence + len(entry.messages)
        releaser.released = token.token_number
        host._after_step(0)  # noqa: SLF001

    async def work() -> None:
        host = ReceiverHost(around.context())
        (site,) = host.floors
        kept = Chain()
        hear(host, kept.add(told_floor(market, 1, opening)))
        hear(host, kept.add(told_floor(market, 2, sell)))
        gone, ring = kept.fork(), following(kept)
        hear(host, gone.add(told_floor(market, 3, buy)))
        assert (site.arbiter.token, around.counters.floor_trades) == (3, 1)
        host.persist([LogReplaced(kept.head.copy(), ring, ())])
        host.machine.receiver.releaser.take_over(2, 3)
        host.perform(Diverged(ring.ballot, 3, 4), 0)
        assert (site.arbiter.token, around.counters.floor_trades_busted) == (2, 1)
        later = kept.enter(ring)
        hear(host, later.add(told_floor(market, 3, dear)), is_out=False)
        hear(host, later.add(told_floor(market, 4, buy)))
        trades = [record.result.trades for record in site.arbiter._now.records.values()]  # noqa: SLF001
        assert [[(one.number, one.buy >> 32, one.quantity) for one in some] for some in trades] == [
            [(1, 3, 7)],
            [(2, 2, 2)],
        ]
        assert not site.has_stopped
        await host.stop()

    run(work)
    assert [code for code in around.codes if code.startswith("floor")] == []


@pytest.mark.parametrize("decided", [0, 1, 2], ids=["before the floor was told", "one token", "as many as were lost"])
def test_a_site_killed_after_a_cut_goes_on_behind_it_and_so_does_its_floor(tmp_path: Path, decided: int) -> None:
    """Killed before it releases anything of the ring's: its journal ends with tokens 3 and 4, and both were lost."""
    tables: dict[str, dict[str, object]] = {
        "floor.XISO": {"sources": ["floor"]},
        "[floor.XISO.symbols]": {"symbol": "ISO"},
    }
    market = new_market(tmp_path, RING, tables)
    around = Surroundings(market, "a")
    sell, buy = Order(1 << 32, 1, "ISO", Side.SELL, 9, 100), Order(2 << 32, 2, "ISO", Side.BUY, 5, 100)
    dear, late = Order(3 << 32, 3, "ISO", Side.BUY, 7, 101), Order(4 << 32, 4, "ISO", Side.BUY, 1, 99)

    def out(host: ReceiverHost, entry: LogEntry, skipped: int = 0) -> None:
        """A token of the log is released; the first of its messages have sequences that are out."""
        releaser, token, messages = host.machine.receiver.releaser, entry.token, entry.messages[skipped:]
        if messages:
            host.perform(Release(token.epoch, entry, token.first_sequence + skipped, messages, 0), 0)
            releaser.next_sequence = token.first_sequence + len(entry.messages)
        releaser.released = token.token_number
        host._after_step(0)  # noqa: SLF001

    kept = Chain()
    both = kept.add(told_floor(market, 1, Directory("ISO", phase=Phase.OPEN))), kept.add(told_floor(market, 2, sell))
    gone, ring = kept.fork(), following(kept)
    later = kept.enter(ring)
    third, fourth = (
        later.add(told_floor(market, 3, dear)),
        later.add(told_floor(market, 4, buy), told_floor(market, 5, late)),
    )

    def take(host: ReceiverHost, *entries: LogEntry) -> None:
        for entry in entries:
            host.persist([EntryAppended(entry)])
            host.perform(EntryCompleted(entry.token.epoch, entry, token_digest(entry.token)), 0)

    async def first_life() -> None:
        host = ReceiverHost(around.context())
        for entry in (*both, gone.add(told_floor(market, 3, buy)), gone.add(told_floor(market, 4, late))):
            take(host, entry)
            out(host, entry)
        assert around.counters.floor_trades == 1
        host.persist([LogReplaced(kept.head.copy(), ring, ())])
        if decided:
            host.machine.receiver.releaser.take_over(2, 3)
            host.perform(Diverged(ring.ballot, 3, 5), 0)
            take(host, *(third, fourth)[:decided])
        await host.stop()

    async def second_life() -> None:
        host = ReceiverHost(around.context())
        (site,) = host.floors
        releaser = host.machine.receiver.releaser
        assert (releaser.released, releaser.offset, releaser.next_sequence) == (2, 0, 5)
        site.replay()
        assert site.arbiter.token == 2
        take(host, *(third, fourth)[decided:])
        out(host, third, skipped=1)
        out(host, fourth, skipped=1)
        trades = [record.result.trades for record in site.arbiter._now.records.values()]  # noqa: SLF001
        assert [[(one.number, one.buy >> 32, one.quantity) for one in some] for some in trades] == [
            [(1, 3, 7)],
            [(2, 2, 2)],
        ]
        assert not site.has_stopped
        await host.stop()

    run(first_life)
    run(second_life)
    assert [code for code in around.codes if code.startswith("floor")] == []


def test_a_correction_is_void_at_every_site_unless_two_of_its_correctors_signed_it(tmp_path: Path) -> None:
    """By the roster that counts at its token: in the place of any other there is nothing."""
    tables: dict[str, dict[str, object]] = {
        "floor.XISO": {"sources": ["floor"], "correctors": ["anna", "ben", "operator"]},
        "[floor.XISO.symbols]": {"symbol": "ISO"},
    }
    market = new_market(tmp_path, RING, tables)
    wanted = Correction(Trade(1, "ISO", 100, 5, 1 << 32, 2 << 32), 1, 0, 0, 1 << 62)
    said = correction_said(load_roster(market).market, "XISO", wanted)
    hands = {name: Signature(operator_id(name), load_identity(market, name).sign(said)) for name in ("anna", "ben")}
    stranger = Signature(market.node("a").node, load_identity(market, "a").sign(said))
    every = [
        wanted._replace(signatures=signatures)
        for signatures in (
            tuple(hands.values()),
            (hands["anna"],),
            (hands["anna"], stranger),
            (hands["anna"], hands["anna"]._replace(signer=hands["ben"].signer)),
        )
    ]
    payloads = [
        cut_opaque([OpaqueMessage(correction_topic("XISO"), encode_correction(one))], 1_000)[0] for one in every
    ]
    at = load_roster(market).members[0].not_before_ns
    for name in ("a", "b"):
        around = Surroundings(market, name)

        async def work(around: Surroundings = around) -> None:
            host = ReceiverHost(around.context())
            chain = Chain(founding()._replace(start=at + SECOND))
            messages = [sealed(market, number, payload) for number, payload in enumerate(payloads, 1)]
            host.perform(release_of(chain, *messages), 0)
            await host.stop()

        run(work)
        assert [payload for _, payload in journalled(market, name)] == [payloads[0], b"", b"", b""]
        assert around.counters.floor_messages_refused == 3
