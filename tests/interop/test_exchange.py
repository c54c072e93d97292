"""A market, the delivery to an exchange and the exchange of examples/, as processes that are killed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.runtime.exchange.halls import CODE, flow, order
from tests.runtime.net.loopback import free_port
from tests.runtime.worlds import PATIENCE_S, SMALL, market_file, running, wait_until

from isocast.cli.main import main
from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import Event
from isocast.orders.exchange import answers_topic, decode_answer
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.disk.journal_reader import JournalReader
from isocast.runtime.market.file import load_market
from isocast.terms.market import Side
from isocast.wire.opaque import OpaqueMessage

EXAMPLE = Path(__file__).parents[2] / "examples" / "exchange.py"
NODES = {
    **{name: SMALL[name] for name in ("a", "b", "c", "x", "archive")},
    "floor": {"role": "primary-source"},
    "city": {"role": "primary-source"},
    "desk": {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False},
}


class Killed:
    """A process that is killed and started again."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([sys.executable, *self._words], **quiet)  # type: ignore[call-overload]

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
            self.process = None


@contextmanager
def started(*several: Killed) -> Iterator[None]:
    try:
        for one in several:
            one.start()
        yield
    finally:
        for one in several:
            one.kill()


def publish(path: Path, events: list[Event]) -> None:
    async def send() -> None:
        async with Publisher(path, "floor") as source:
            await source.send([OpaqueMessage(floor_topic(CODE), encode_event(event)) for event in events])

    asyncio.run(send())


@pytest.mark.long
def test_orders_reach_an_exchange_once_and_in_order_whoever_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = market_file(tmp_path, NODES)
    journal = load_market(path).directory_of("a") / "journal"
    port = str(free_port())
    exchange = Killed(str(EXAMPLE), str(tmp_path / "exchange"), port, "ISO", "OIL")
    words = ["--config", str(path), "--exchange", CODE, "--source", "city", "--fix", f"127.0.0.1:{port}"]
    delivery = Killed("-m", "isocast", "exchange", "run", *words)
    log = tmp_path / "exchange" / "requests.jsonl"

    def taken() -> list[str]:
        lines = log.read_text(encoding="ascii").splitlines() if log.exists() else []
        return [json.loads(line)["11"] for line in lines]

    def answers() -> list[tuple[str, str]]:
        found = [one.message for one in JournalReader(journal).opaque_messages()] if journal.exists() else []
        told = [decode_answer(one.payload) for one in found if one.topic == answers_topic(CODE)]
        return [(str(one.order), one.execution) for one in told]

    with running(path), started(exchange, delivery):
        publish(path, flow())
        wait_until(taken)
        delivery.kill()
        publish(path, [order(20 + number, Side.BUY, 1, 5) for number in range(10)])
        delivery.start()
        wait_until(lambda: len(taken()) > 14)
        exchange.kill()
        publish(path, [order(40 + number, Side.SELL, 1, 5, account=3) for number in range(4)])
        exchange.start()
        wait_until(lambda: len(taken()) == 26 and {one for one, _ in answers()} >= set(taken()))
        # 12 of the flow and 14 more; 2 of the flow are declined.
        assert main(["exchange", "audit", str(journal), "--exchange", CODE, "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["is_kept"], verdict["requests"], verdict["taken"], verdict["declined"]) == (True, 26, 26, 2)
    assert len(set(taken())) == 26, "nothing was taken twice"
    named = [execution for _, execution in answers() if execution]
    assert named == [f"{CODE}-{number}" for number in range(1, len(named) + 1)], "each report once, in order"
