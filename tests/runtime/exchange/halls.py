"""An exchange, its delivery and a sequence in memory, each of which can die and come back."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import Cancel, Event, Order, Replace
from isocast.orders.delivery import Delivery, Place
from isocast.orders.exchange import ExchangeAnswer, answers_topic, decode_answer
from isocast.runtime.accounts.fix.initiator import Acceptor, FixInitiator
from isocast.runtime.accounts.fix.server import FixServer
from isocast.runtime.accounts.fix.store import SessionName, SessionStore
from isocast.runtime.exchange.delivery import DeliveryPace, ExchangeDelivery, stay_connected
from isocast.runtime.exchange.directing import ExchangeFollower
from isocast.runtime.exchange.fix_orders import TAKES
from isocast.runtime.exchange.serving import open_stores
from isocast.runtime.exchange.spool import HeardMessage
from isocast.terms.market import Side
from isocast.wire.opaque import OpaqueMessage

CODE = "XLON"
OURS = "ISOCAST"
MS = 1_000_000
START = 1_700_000_000_000 * MS
UNIT = 10_000
PACE = DeliveryPace(again_s=0.05, retry_s=(0.01, 0.05))


def example() -> ModuleType:
    """examples/exchange.py."""
    name = "examples_exchange"
    if name not in sys.modules:
        path = Path(__file__).parents[3] / "examples" / "exchange.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def order(number: int, side: Side, quantity: int, price: int, symbol: str = "ISO", account: int = 1) -> Order:
    return Order(account << 32 | number, account, symbol, side, quantity, price * UNIT)


class Sequence_:  # noqa: N801 - collections.abc has the name
    """What was published, in order; two messages share a packet."""

    def __init__(self) -> None:
        self.messages: list[tuple[Place, str, bytes]] = []
        self.keys: set[bytes] = set()
        self.broken = False

    def say(self, *events: Event) -> list[Place]:
        """Orders of traders."""
        return [self.put(floor_topic(CODE), encode_event(event)) for event in events]

    def put(self, topic: str, payload: bytes) -> Place:
        number = len(self.messages)
        place = Place(1 + number // 2, number % 2)
        self.messages.append((place, topic, payload))
        return place

    async def publish(self, messages: Sequence[tuple[bytes, OpaqueMessage]]) -> None:
        await asyncio.sleep(0)
        if self.broken:
            raise OSError("nobody at the door")
        for key, message in messages:
            if key not in self.keys:
                self.keys.add(key)
                self.put(message.topic, message.payload)

    def answers(self) -> list[ExchangeAnswer]:
        return [decode_answer(payload) for _, topic, payload in self.messages if topic == answers_topic(CODE)]

    def audit(self) -> Delivery:
        follower = ExchangeFollower(CODE)
        for message in self.messages:
            follower.hear(*message)
        return follower.audit()


class Hall:
    """Both sides of a FIX session on loopback; `crash` is what a process that is killed leaves."""

    def __init__(self, folder: Path, sequence: Sequence_, pace: DeliveryPace = PACE) -> None:
        self.folder = folder
        self.sequence = sequence
        self.pace = pace
        self.alarms: list[tuple[str, str]] = []
        self.port = 0
        self.exchange: Any = None
        self.server: FixServer | None = None
        self.delivery: ExchangeDelivery | None = None
        self.reached: Callable[[str], None] = lambda _: None
        self._work: list[asyncio.Task[None]] = []

    # The exchange -----------------------------------------------------------------------------------------------

    async def open_exchange(self, exchange: Any = None) -> None:  # noqa: ANN401 - the example's, or another
        folder = self.folder / "exchange"
        folder.mkdir(exist_ok=True)
        numbers = folder / "fix.db"
        self.exchange_store = SessionStore(numbers, is_new=not numbers.exists())
        self.exchange = exchange or example().Exchange(folder, ["ISO", "OIL"])
        self.server = FixServer(CODE, self.exchange, self.exchange_store)
        await self.server.start("127.0.0.1", self.port)
        self.port = self.server.port

    async def kill_exchange(self) -> None:
        """Whatever was not on the disk is gone."""
        assert self.server is not None
        await self.server.cut()
        await self.exchange_store.close()
        if hasattr(self.exchange, "log"):
            self.exchange.log.close()
        self.server = None

    # The delivery -----------------------------------------------------------------------------------------------

    async def open_delivery(self, *, resets: bool = False) -> None:
        self.spool, self.store = open_stores(self.folder / "delivery", CODE, 0)
        kept = await self.store.load(SessionName(0, CODE, OURS))
        assert kept is not None

        async def find_sent(number: int) -> bytes | None:
            found = await self.store.read(kept.id, number, number, 1)
            return found[0][1] if found else None

        def alarm(code: str, text: str, remedy: str) -> None:
            assert remedy
            self.alarms.append((code, text))

        self.delivery = ExchangeDelivery(
            self.spool,
            self.sequence.publish,
            find_sent=find_sent,
            pace=self.pace,
            alarm=alarm,
            reached=self._reach,
        )
        state = await self.delivery.open()
        self.heard = state.sequence
        acceptor = Acceptor("127.0.0.1", self.port, OURS, CODE)
        self.initiator = FixInitiator(acceptor, self.delivery, self.store, TAKES)
        self._work = [
            asyncio.create_task(self._follow(self.delivery)),
            asyncio.create_task(stay_connected(self.delivery, self.initiator, self.pace, alarm, resets=resets)),
        ]

    async def _follow(self, delivery: ExchangeDelivery) -> None:
        """Batches of some packets, as a listener has them."""
        while True:
            last = self.sequence.messages[-1][0].sequence if self.sequence.messages else 0
            # The last packet may get another message.
            last = last if len(self.sequence.messages) % 2 == 0 else last - 1
            if last <= self.heard:
                await asyncio.sleep(0.002)
                continue
            up_to = min(last, self.heard + 3)
            messages = [
                HeardMessage(place, START + place.sequence * MS, payload)
                for place, topic, payload in self.sequence.messages
                if self.heard < place.sequence <= up_to and topic == floor_topic(CODE)
            ]
            await delivery.take(messages, up_to)
            self.heard = up_to

    def _reach(self, step: str) -> None:
        self.reached(step)

    @property
    def failure(self) -> BaseException | None:
        """Why a part of the delivery has ended."""
        every = [*self._work, *([self.delivery._publishing] if self.delivery is not None else [])]  # noqa: SLF001
        for task in every:
            if task is not None and task.done() and not task.cancelled():
                return task.exception()
        return None

    async def kill_delivery(self) -> None:
        """Whatever was not on the disk is gone."""
        assert self.delivery is not None
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await self.delivery.close()
        await self.store.close()
        self.spool.close()
        self.delivery = None


def flow() -> list[Event]:
    """Orders that trade, rest, are replaced, cancelled and refused; an even number of them."""
    buy, sell = Side.BUY, Side.SELL
    return [
        order(1, sell, 100, 10),
        order(1, buy, 60, 10, account=2),
        order(2, sell, 50, 11),
        Replace(1 << 32 | 2, 1, 80, 12 * UNIT),
        order(2, buy, 10, 9, "OIL", account=2),
        Cancel(2 << 32 | 2, 2),
        Cancel(2 << 32 | 77, 2),
        order(3, buy, 30, 12, account=2),
        order(4, buy, 7, 1, "NONE", account=2),
        Replace(1 << 32 | 2, 1, 40, None),
        order(5, buy, 90, 12, account=2),
        Cancel(2 << 32 | 5, 2, 5),
        Cancel(2 << 32 | 5, 2),
        order(3, sell, 1, 20),
    ]
