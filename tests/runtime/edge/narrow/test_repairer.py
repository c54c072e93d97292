"""A retransmit server's narrow stripes: kept from two lines, filled from receivers, repaired once, within a rate."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from errno import ENOSPC
from pathlib import Path
from time import time_ns

import pytest
from tests.runtime.edge.narrow.edge_worlds import PLAN
from tests.runtime.hosts.contexts import new_market, run
from tests.runtime.worlds import eventually

from isocast.feeds.days import day_at
from isocast.feeds.mold import HEADER_BYTES, heartbeat, packet_of, parse_packet, session_name
from isocast.runtime.edge.narrow.archive import RequestDesk, StripeArchive, read_proof_request
from isocast.runtime.edge.narrow.ears import StripeEars
from isocast.runtime.edge.narrow.places import repair_budget, request_endpoint
from isocast.runtime.edge.narrow.repairer import Repairer
from isocast.runtime.edge.narrow.stripe_keys import SenderKeys
from isocast.runtime.market.key_files import load_repair_key
from isocast.runtime.market.model import Market
from isocast.security.repairs import RepairOpener, RepairRequest, write_repair_request
from isocast.striping.plan import plan_text
from isocast.striping.proving import PACKETS_A_PROOF
from isocast.striping.rates import RateMeter
from isocast.terms.instants import SECOND
from isocast.wire.stripe_proofs import STRIPE_PROOF_MAGIC, StripeProof, read_stripe_proof

Alarms = list[tuple[str, str, str]]


@pytest.fixture(params=[True, False], ids=["signed", "unsigned"])
def market(tmp_path: Path, request: pytest.FixtureRequest) -> Market:
    (tmp_path / "stripes.toml").write_text(plan_text(PLAN), encoding="utf-8")
    edge = {"plan": "stripes.toml", "span": 16}
    return new_market(tmp_path, settings={"edge": edge, "security": {"signatures": request.param}})


@pytest.fixture
def repairer(market: Market) -> Iterator[Repairer]:
    alarms: Alarms = []
    made = Repairer(market, market.node("archive"), load_repair_key(market), time_ns, lambda *said: alarms.append(said))
    made._join()  # noqa: SLF001 - as every second
    yield made
    made.close()


def session(market: Market, stripe: int = 1) -> bytes:
    assert market.edge is not None
    return session_name(day_at(time_ns(), market.edge.zone), stripe).encode()


def packet(name: bytes, first: int, count: int, fill: int = 0) -> bytes:
    body = b"".join(
        (44).to_bytes(2) + bytes([fill]) * 40 + number.to_bytes(4) for number in range(first, first + count)
    )
    return packet_of(name, first, count, body)


def test_two_lines_are_one_archive_and_differences_are_told(market: Market, repairer: Repairer) -> None:
    name = session(market)
    assert repairer.keep(packet(name, 1, 5), 0)
    assert not repairer.keep(packet(name, 1, 5), 0)
    assert repairer.keep(packet(name, 6, 5), 0)
    assert (repairer.counts.packets, repairer.counts.repeated, repairer.counts.conflicts) == (2, 1, 0)
    assert not repairer.keep(packet(name, 1, 5, fill=1), 0)
    assert repairer.counts.conflicts == 1


def test_what_is_none_of_ours_is_counted_and_dropped(market: Market, repairer: Repairer) -> None:
    for raw in (
        packet(b"9901010001", 1, 1),
        packet(session(market, 14), 1, 1),
        packet(session(market), 1_000_000_000, 1),
        packet(b"          ", 1, 1),
    ):
        assert not repairer.keep(raw, 0)
    assert repairer.counts.strange == 4
    assert not repairer.keep(b"rubbish", 0)
    assert list(repairer.archive.packets()) == []


def test_who_was_away_for_hours_goes_on_with_whatever_number_the_day_has_reached(
    market: Market, repairer: Repairer
) -> None:
    assert repairer.keep(packet(session(market), 1, 5), 0)
    assert repairer.keep(packet(session(market), 5_000_000, 5), 0)
    assert repairer.counts.strange == 0


def test_what_the_disk_does_not_take_is_told_and_asked_for_later(
    market: Market, repairer: Repairer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    name = session(market)
    alarms: Alarms = []
    repairer._alarm = lambda *said: alarms.append(said)  # noqa: SLF001 - what its server gives it
    assert repairer.keep(packet(name, 1, 5), 0)
    with monkeypatch.context() as broken:
        broken.setattr(repairer.archive, "append", full)
        assert not repairer.keep(packet(name, 6, 5), 0)
    assert (repairer.counts.packets, repairer.counts.not_kept) == (1, 1)
    assert [code for code, _, _ in alarms] == ["edge-disk"]
    assert repairer._holes == {}  # noqa: SLF001 - nobody is asked while there is no room
    assert repairer.keep(packet(name, 11, 5), 0)
    assert list(repairer._holes) == [name]  # noqa: SLF001
    assert repairer.archive.missing(name, 16, 5) == [(6, 5)]


class _Ear:
    """In the place of the socket: to whom requests went."""

    def __init__(self) -> None:
        self.to: list[tuple[str, int]] = []

    def sendto(self, raw: bytes, where: tuple[str, int]) -> None:
        if len(raw) == HEADER_BYTES:  # Beside each request for packets there is one for their proofs.
            self.to.append(where)

    def close(self) -> None:
        pass


def _asked_over(repairer: Repairer, seconds: int) -> list[tuple[str, int]]:
    """Whom it asks, by a clock of its own."""
    ear, begun = _Ear(), time_ns()
    repairer._out.close()  # noqa: SLF001 - nothing is sent
    repairer._out = ear  # type: ignore[assignment]  # noqa: SLF001
    for tick in range(10 * seconds):
        repairer._now = lambda at=begun + tick * SECOND // 10: at  # type: ignore[misc]  # noqa: SLF001
        repairer.poll()
    return ear.to


def test_a_hole_is_known_until_it_is_filled_and_asked_of_receivers_that_are_not_heard_too(
    market: Market, repairer: Repairer
) -> None:
    """The receivers whose lines it hears may be dead, and nobody may publish for minutes."""
    repairer.keep(packet(session(market), 1, 5), 0)
    repairer.keep(heartbeat(session(market), 16), 0)
    asked = _asked_over(repairer, 60)
    heard = {request_endpoint(market, market.node(name)) for name in market.node("archive").lines}
    others = {request_endpoint(market, plan) for plan in market.receivers} - heard
    assert others
    assert others <= set(asked[-20:])
    assert heard <= set(asked[:4])
    assert len(asked) < 100, "it asks less often by and by"


def test_holes_of_an_earlier_run_are_found_again(market: Market, repairer: Repairer) -> None:
    name = session(market)
    repairer.keep(packet(name, 1, 5), 0)
    repairer.keep(packet(name, 11, 5), 0)
    repairer.close()
    alarms: Alarms = []
    again = Repairer(market, market.node("archive"), load_repair_key(market), time_ns, lambda *one: alarms.append(one))
    try:
        again._join()  # noqa: SLF001 - as every second
        again.keep(packet(name, 16, 5), 0)
        assert list(again._holes) == [name]  # noqa: SLF001
    finally:
        again.close()


def test_what_no_line_brought_is_asked_of_the_receivers(market: Market, repairer: Repairer, tmp_path: Path) -> None:
    async def work() -> None:
        name = session(market)
        theirs = StripeArchive(tmp_path / "theirs", 7)
        for first in (1, 6, 11):
            theirs.append(name, first, 5, 0, packet(name, first, 5))
        line = market.node("a")
        prover = SenderKeys(market, line).prover

        def prove(raw: bytes, sender: tuple[str, int]) -> bool:
            wanted = read_proof_request(raw)
            assert prover is not None
            packets = theirs.run(wanted.session, wanted.sequence, wanted.count, PACKETS_A_PROOF)
            desk.reply(prover.prove_packets(packets, time_ns()), sender)
            return True

        desk = RequestDesk(request_endpoint(market, line), theirs, strangers=True, rate=50, other=prove)
        loop = asyncio.get_running_loop()
        loop.add_reader(desk, desk.read)
        running = asyncio.create_task(repairer.run())
        try:
            repairer.keep(packet(name, 1, 5), 0)
            repairer.keep(heartbeat(name, 16), 0)
            await eventually(lambda: repairer.counts.filled == 10)
            assert repairer.archive.missing(name, 16, 5) == []
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            loop.remove_reader(desk)
            desk.close()
            theirs.close()

    run(work)


def test_many_losers_get_one_repair_that_only_the_key_opens_and_no_more_than_its_rate(
    market: Market, repairer: Repairer
) -> None:
    async def work() -> None:
        name, edge = session(market), market.edge
        assert edge is not None
        for first in range(1, 200, 5):
            repairer.keep(packet(name, first, 5), 0)
        ears = StripeEars(market.node("bank").address, edge.port)
        (hearing,) = ears.hear([edge.repair_group(market.node("archive").number, 1)])
        running = asyncio.create_task(repairer.run())
        secret = load_repair_key(market)
        found: dict[int, int] = {}
        meter = RateMeter(market.timing.token_period_ns)
        opener = RepairOpener(secret)
        proven: list[StripeProof] = []

        def complete() -> bool:
            for heard in ears.read(hearing):
                meter.note(heard.at, 28 + len(heard.raw))
                raw = opener.open(heard.raw)[2]
                if raw.startswith(STRIPE_PROOF_MAGIC):
                    proven.append(read_stripe_proof(raw))
                    continue
                one = parse_packet(raw)
                for number in range(one.sequence, one.sequence + one.count):
                    found[number] = found.get(number, 0) + 1
            return len(found) == 40

        try:
            with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as client:
                for customer in range(10):
                    wanted = RepairRequest(131_100 + customer, name, 11, 40)
                    client.sendto(write_repair_request(secret, wanted), repairer.desk.where)
                await eventually(complete)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            ears.close()
        assert set(found) == set(range(11, 51))
        assert set(found.values()) == {1}, "once for ten"
        assert repairer.counts.asked == 10
        assert repairer.counts.coalesced == 9
        assert meter.peak <= repair_budget(market, PLAN, 1)
        if market.security.signatures:
            assert {proof.signer for proof in proven} == {market.node("archive").node}
            assert sum(len(proof.blocks) for proof in proven) == 8, "each packet once"

    run(work)
