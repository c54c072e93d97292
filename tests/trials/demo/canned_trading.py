"""The show's market with a trading floor, without its processes: real books, a sequence in memory, journals of it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TypeVar

from tests.runtime.accounts.sequence import MemoryGateway, MemorySequence
from tests.trials.demo.canned import EPOCH

from isocast.floor.arbiter import Arbiter, TokenReleased
from isocast.floor.following import FloorMessage
from isocast.orders.accounts import UNITS
from isocast.orders.desk import NewOrder
from isocast.orders.needs import Side
from isocast.runtime.accounts.trading import DeskSettings
from isocast.runtime.disk.database import sqlite_url
from isocast.runtime.disk.journal import Journal
from isocast.runtime.market.model import Market, NodeRole
from isocast.runtime.operate.floor_change import opening
from isocast.terms.ids import source_id
from isocast.trials.demo.cast import DemoNetwork
from isocast.trials.demo.staging import set_stage
from isocast.trials.demo.trading import GATEWAYS, TRADERS, TraderSeat
from isocast.trials.evidence import journal_of
from isocast.wire.journal_blocks import JournalMessage, ReleasedBlock
from isocast.wire.opaque import OpaqueMessage, cut_opaque
from isocast.wire.packets import payload_digest

Token = tuple[int, int, list[FloorMessage]]
TokenChange = Callable[[Sequence[Token]], Sequence[Token]]
_MOST = 1_200
ResultT = TypeVar("ResultT")


def trading_market(folder: Path) -> Market:
    """On the disk, with keys and books; nothing is bound."""
    return set_stage(folder, DemoNetwork(16, 16), loss=0.02, seed=7, traders=True)


def seat_of(city: str) -> TraderSeat:
    return next(seat for seat in TRADERS if seat.city == city)


def finished(steps: Generator[None, None, ResultT]) -> ResultT:
    """What comes of some steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: ResultT = end.value
            return found


class CannedTrading:
    """Gateways with their real books on a sequence in memory. To be closed."""

    def __init__(self, market: Market) -> None:
        """The floor is open."""
        self.market = market
        table = market.floors[0]
        self.sequence = MemorySequence(*opening(table))
        settings = DeskSettings(floor=table.code, currency=table.currency, fee_bp=(0, table.taker_fee_bp))
        self.gateways = {
            gateway.name: MemoryGateway(sqlite_url(gateway.database(market)), gateway.number, (), settings)
            for gateway in GATEWAYS
        }
        self._count = 0
        self.follow()

    def close(self) -> None:
        for gateway in self.gateways.values():
            gateway.close()

    def order(self, city: str, side: Side, quantity: int, price: int, *, publish: bool = True) -> None:
        """An order in ISO at a whole price; it waits for the next token."""
        seat = seat_of(city)
        gateway = self.gateways[seat.gateway]
        self._count += 1
        wanted = NewOrder(f"o{self._count}", "ISO", side, quantity, price=price * UNITS)
        [report] = gateway.ask(seat.account, wanted)
        assert report.kind == "accepted", report
        if publish:
            gateway.publish(self.sequence)

    def step(self) -> None:
        """A token with all that waits."""
        self.sequence.step()
        self.follow()

    def follow(self, *names: str) -> None:
        """Those gateways, or all, hear the sequence up to now."""
        for name in names or self.gateways:
            self.gateways[name].follow(self.sequence)

    def trade(self) -> None:
        """London sells 100 at 100.00; New York takes 40 of them and Tokyo 60; a trade each, tentative."""
        self.order("London", Side.SELL, 100, 100)
        self.step()
        self.order("New York", Side.BUY, 40, 101)
        self.step()
        self.order("Tokyo", Side.BUY, 60, 100)
        self.step()

    # Written down ---------------------------------------------------------------------------------

    def write(self, changes: dict[str, TokenChange] | None = None, change_all: TokenChange | None = None) -> None:
        """Journals and floor states of every receiver; changes spoil those that they name, or all."""
        for plan in self.market.receivers:
            tokens: Sequence[Token] = self.sequence.tokens
            for change in (change_all, (changes or {}).get(plan.name)):
                tokens = tokens if change is None else change(tokens)
            with Journal.open(journal_of(self.market, plan.name), 0, plan.node) as journal:
                for block in _blocks(self.market, tokens):
                    journal.append(block)
        for plan in self.market.by_role(NodeRole.PRIMARY_RECEIVER):
            arbiter = Arbiter("XISO", plan.node)
            for token in self.sequence.tokens:
                arbiter.step(_released(self.market, token))
            state = self.market.directory_of(plan.name) / "floor-XISO.state"
            state.write_bytes(arbiter.snapshot())


def _released(market: Market, token: Token) -> TokenReleased:
    number, instant, messages = token
    ring = tuple([plan.node for plan in market.by_role(NodeRole.PRIMARY_RECEIVER)])
    return TokenReleased(
        token=number,
        instant=instant,
        stable=number - 1,
        is_own=False,
        ring_size=len(ring),
        universe=ring,
        messages=tuple(messages),
        is_replay=False,
    )


def _blocks(market: Market, tokens: Sequence[Token]) -> list[ReleasedBlock]:
    """One message for each token: what travelled in one packet."""
    source = source_id(5, 1)
    blocks = []
    for place, (number, instant, messages) in enumerate(tokens, 1):
        [payload] = cut_opaque([OpaqueMessage(one.topic, one.payload, sent=1) for one in messages], _MOST)
        message: JournalMessage = (source, place, payload_digest(payload), payload)
        due = instant + market.timing.release_delay_ns
        blocks.append(
            ReleasedBlock(
                epoch=EPOCH,
                token_number=number,
                token_count=1,
                place=0,
                first_sequence=place,
                instant=instant,
                due=due,
                released_at=due,
                clock_bound_ns=market.timing.clock_error_ns,
                shuffle_key=messages[0].shuffle_key,
                messages=[message],
            )
        )
    return blocks
