"""A simulated trading floor (§7.3): an arbiter at every primary receiver, orders as messages, and one customer.

A receiver's arbiter gets every token that the receiver has released, those without messages too, and writes it to a
journal that survives crashes. A report goes to a source of the receiver's own after a moment: a receiver that crashes
before that takes the report with it. After a crash an arbiter goes on from its last snapshot and its journal; one whose
log begins behind another's checkpoint gets what it lacks from a journal of another receiver, as from an archive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, assert_never

from isocast.checks.facts import (
    AgreedTrade,
    FloorBusted,
    FloorConfirmed,
    FloorCut,
    FloorDiffered,
    FloorReported,
    FloorStepped,
    FloorTold,
)
from isocast.floor.arbiter import (
    Arbiter,
    ArbiterEffect,
    ArbiterStopped,
    FloorDiverged,
    PublishHalt,
    PublishPrints,
    PublishReport,
    PublishWake,
    Stepped,
    TokenReleased,
    TradesBusted,
    TradesConfirmed,
    Truncated,
)
from isocast.floor.codec import decode_event, encode_event, floor_topic
from isocast.floor.confirming import ConfirmationFollower, Confirmed, ReportDiffers
from isocast.floor.events import AuctionKind, Cancel, Commit, Directory, Event, Lot, Order, Phase, Reveal, Trade
from isocast.floor.following import FloorFollower, FloorMessage, FloorStep
from isocast.floor.printing import printed, prints, tape_topic
from isocast.floor.reporting import encode_report, joined, report_topic
from isocast.floor.rules.second_price import NONCE_BYTES, commitment
from isocast.floor.transcripts import transcript_of_step
from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.ring.inputs import Machine
from isocast.ring.ledger import LogEntry
from isocast.ring.storage import SiteState
from isocast.simulation.host import Ordinary, SimulatedHost
from isocast.simulation.network import stream
from isocast.simulation.world import World
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import Epoch, NodeId, source_id
from isocast.terms.market import Side
from isocast.terms.timing import Gate
from isocast.wire.events import EventArray
from isocast.wire.opaque import OpaqueMessage, cut_opaque, read_opaque_or_none

__all__ = ["CODE", "FloorWorld"]

CODE = "XSIM"
_SYMBOLS = ("ISO", "CAST")
_MOST = 1_200
"""Bytes of a message: what fits a datagram."""
_EVENTS = 4
"""Market events of a message: some prints have several messages."""
_REPORT_MOST = 400
"""Bytes of a part of a report: some reports have several."""
_SNAPSHOT_TOKENS = 5
"""A receiver writes a snapshot so often."""
_LISTED_AGAIN = 16
"""The directory is in every so many messages: any of them may be lost with its source's outbox."""
_ACCOUNTS = 5
"""That trade at each source."""
_ACCOUNTS_APART = 10
"""The accounts of a source begin so far behind those of the one before."""
_LOT_QUANTITY = 3
_DELAYS = (0.0, 0.0, 0.02, 0.5, 1.5)
"""Token periods between a release and its report's way to the source."""


class _Released(NamedTuple):
    """A token in a receiver's journal."""

    epoch: Epoch
    event: TokenReleased


@dataclass(slots=True, eq=False)
class _Desk:
    """The arbiter of a receiver, and what is on its disk."""

    arbiter: Arbiter
    life: Machine[Ordinary, object] | None
    """Of the receiver: another one has to make its arbiter again."""
    snapshot: bytes | None = None
    journal: list[_Released] = field(default_factory=list)
    """From token 1 on."""
    waiting: int = 0
    """Reports that have not reached the source."""


def _trade(trade: Trade) -> AgreedTrade:
    return AgreedTrade(*trade[:6])


def _trades(trades: tuple[Trade, ...]) -> tuple[AgreedTrade, ...]:
    return tuple([_trade(trade) for trade in trades])


class FloorWorld:
    """The floor of a world."""

    def __init__(self, world: World) -> None:
        """Nothing has traded."""
        self.world = world
        self._random = stream(world.seed, "floor", "orders")
        self._delays = stream(world.seed, "floor", "doors")
        self._bidding = stream(world.seed, "floor", "lots")
        self._lot: Lot | None = None
        """The newest one."""
        self._bids: list[tuple[Commit, int, bytes]] = []
        """For it, with price and nonce."""
        self._desks: dict[NodeId, _Desk] = {}
        self._sources: dict[NodeId, NodeId] = {}
        self._live: list[tuple[int, int]] = []
        """Orders that a trader may want to cancel: id and account."""
        self.customer: ConfirmationFollower | None = None
        """Follows the first site to release, where all release the same."""
        if not world.scenario.may_diverge and world.settings.timing.gate is not Gate.TIMED:
            self.customer = ConfirmationFollower(FloorFollower(CODE))
        self._heard = 0
        for site in world.sites:
            self._source(site)

    # Traders ---------------------------------------------------------------------------------------------------

    def payload(self, key: int, source: int) -> bytes:
        """One to three events, mostly orders around one price, of accounts that this source alone speaks for."""
        events: list[Event] = []
        if key % _LISTED_AGAIN == 1:
            events += [Directory(symbol, phase=Phase.OPEN, reference=100) for symbol in _SYMBOLS]
        for place in range(self._random.choice([1, 1, 2, 3])):
            events.append(self._event(4 * key + place, _ACCOUNTS_APART * source))
        if self._bidding.random() < 0.3:  # noqa: PLR2004 (three messages in ten)
            events.append(self._sealed(4 * key + 3, _ACCOUNTS_APART * source + _ACCOUNTS + 1))
        messages = [OpaqueMessage(floor_topic(CODE), encode_event(event)) for event in events]
        (block,) = cut_opaque(messages, _MOST)
        return block

    def _sealed(self, number: int, account: int) -> Event:
        """A sealed lot, a bid for it, or its reveal, too early at times."""
        random, now = self._bidding, self.world.agenda.now
        lot, period_ns = self._lot, self.world.settings.timing.token_period_ns
        if lot is None or now >= lot.closes_at + lot.window_ns:
            self._bids = []
            self._lot = Lot(
                account << 32 | number, account, _SYMBOLS[0], AuctionKind.SECOND_PRICE, _LOT_QUANTITY, reserve=90,
                closes_at=now + 8 * period_ns, window_ns=8 * period_ns, forfeit=5,
            )  # fmt: skip
            return self._lot
        if not self._bids or (now < lot.closes_at and random.random() < 0.5):  # noqa: PLR2004 (a half)
            price, nonce = random.randint(85, 105), random.randbytes(NONCE_BYTES)
            bidder = account + 1
            digest = commitment(price, nonce, bidder, lot.id)
            bid = Commit(bidder << 32 | number, bidder, lot.id, 110, digest)
            self._bids.append((bid, price, nonce))
            return bid
        bid, price, nonce = random.choice(self._bids)
        return Reveal(bid.id, bid.account, price, nonce)

    def _event(self, number: int, first_account: int) -> Event:
        random = self._random
        if self._live and random.random() < 0.1:  # noqa: PLR2004 (one in ten)
            return Cancel(*random.choice(self._live))
        account = first_account + random.randint(1, _ACCOUNTS)
        order = Order(
            id=account << 32 | number,
            account=account,
            symbol=random.choice(_SYMBOLS),
            side=random.choice([Side.BUY, Side.SELL]),
            quantity=random.randint(1, 9),
            price=random.randint(97, 103),
        )
        self._live = [*self._live[-20:], (order.id, account)]
        match random.choice(["limit", "limit", "limit", "limit", "now", "market", "stop", "stop"]):
            case "now":
                return order._replace(is_immediate=True)
            case "market":
                return order._replace(is_market=True, price=0)
            case "stop":
                return order._replace(trigger=order.price, is_market=True, price=0)
            case _:
                return order

    # Tokens ----------------------------------------------------------------------------------------------------

    def moved(self, host: SimulatedHost) -> None:
        """A receiver has completed or released something: its arbiter gets what is out by now."""
        machine = host.machine
        disk = self.world.disks[host.node]
        if not isinstance(machine, PrimaryReceiver) or not isinstance(disk, SiteState):
            return
        desk = self._desk(host)
        if disk.checkpoint.token_number > desk.arbiter.token:
            self._adopt(host, desk, disk.checkpoint.token_number)
        while (entry := disk.entries.get(desk.arbiter.token + 1)) is not None:
            if not self._is_out(entry, machine, disk):
                return
            self._feed(host, desk, self._released(host.node, machine, entry))

    def _is_out(self, entry: LogEntry, machine: PrimaryReceiver, disk: SiteState) -> bool:
        """Whether all of a token is released, by what the disk says."""
        if self.world.build.floor_unreleased:
            return True
        following = entry.token.first_sequence + len(entry.messages)
        return entry.token.token_number <= machine.receiver.releaser.released and following <= disk.next_sequence

    def _released(self, site: NodeId, machine: PrimaryReceiver, entry: LogEntry) -> _Released:
        token = entry.token
        rings = [ring for ring in self.world.rings if ring.ballot == token.epoch]
        messages: list[FloorMessage] = []
        for place, data in enumerate(entry.messages):
            author = (data.sender >> 32) - self.world.scenario.sources
            sequence = token.first_sequence + place
            messages += [
                FloorMessage(sequence, one.topic, one.payload, entry.shuffle_key, author if author > 0 else None)
                for one in read_opaque_or_none(data.payload) or ()
            ]
            if len(printed(CODE, data.payload)):
                messages.append(FloorMessage(sequence, tape_topic(CODE), data.payload, entry.shuffle_key))
        event = TokenReleased(
            token.token_number,
            token.instant,
            token.stable,
            len(rings[0].ring),
            machine.receiver.membership.universe(),
            tuple(messages),
            is_own=token.sender == site,
        )
        return _Released(token.epoch, event)

    def _feed(self, host: SimulatedHost, desk: _Desk, released: _Released) -> None:
        """One token: into the journal, to the arbiter, to the customer."""
        desk.journal.append(released)
        self._perform(host, desk, released, desk.arbiter.step(released.event))
        if released.event.token % _SNAPSHOT_TOKENS == 0:
            desk.snapshot = desk.arbiter.snapshot()
        if self.customer is not None and released.event.token == self._heard + 1:
            self._heard += 1
            self._tell(self.customer, released.event)

    def _tell(self, customer: ConfirmationFollower, event: TokenReleased) -> None:
        now = self.world.agenda.now
        heard = [news for message in event.messages for news in customer.hear(event.token, event.instant, message)]
        for news in (*heard, *customer.finish()):
            if isinstance(news, Confirmed):
                self.world.fact(FloorTold(now, _trades(news.trades)))
            elif isinstance(news, ReportDiffers):
                self.world.fact(FloorDiffered(now, 0, news.token, "a report differs from what a customer has"))

    # Lives -----------------------------------------------------------------------------------------------------

    def _desk(self, host: SimulatedHost) -> _Desk:
        """The arbiter in the present life of its receiver."""
        site, desk = host.node, self._desks.get(host.node)
        if desk is None:
            desk = self._desks[site] = _Desk(self._arbiter(site, None), host.machine)
        elif desk.life is not host.machine:
            desk.life, desk.waiting = host.machine, 0
            desk.arbiter = self._arbiter(site, desk.snapshot)
            self._replay(host, desk, desk.journal[desk.arbiter.token :])
        return desk

    def _arbiter(self, site: NodeId, snapshot: bytes | None) -> Arbiter:
        return self.world.build.arbiter(CODE, site, snapshot, most=_REPORT_MOST)

    def _replay(self, host: SimulatedHost, desk: _Desk, journal: list[_Released]) -> None:
        for released in journal:
            event = replace(released.event, is_replay=True, is_own=False)
            self._perform(host, desk, _Released(released.epoch, event), desk.arbiter.step(event))

    def _adopt(self, host: SimulatedHost, desk: _Desk, token: int) -> None:
        """What the log let go is in the journals of others."""
        others = [other for site, other in self._desks.items() if site != host.node and len(other.journal) >= token]
        if others:
            lacking = others[0].journal[desk.arbiter.token : token]
            desk.journal += lacking
            self._replay(host, desk, lacking)

    def cut(self, site: NodeId, keep: int) -> None:
        """A receiver's log was cut, or replaced."""
        desk, host = self._desks.get(site), self.world.hosts[site]
        if desk is None or keep >= len(desk.journal):
            return
        desk = self._desk(host)
        del desk.journal[keep:]
        self.world.fact(FloorCut(self.world.agenda.now, site, keep))
        released = desk.journal[-1] if desk.journal else None
        if released is not None:
            self._perform(host, desk, released, desk.arbiter.step(Truncated(keep)))
        else:
            desk.arbiter = self._arbiter(site, None)

    def forget(self, site: NodeId) -> None:
        """A receiver's disk is blank."""
        if self._desks.pop(site, None) is not None:
            self.world.fact(FloorCut(self.world.agenda.now, site, 0))

    # Effects ---------------------------------------------------------------------------------------------------

    def _perform(
        self, host: SimulatedHost, desk: _Desk, released: _Released, effects: tuple[ArbiterEffect, ...]
    ) -> None:
        world, site, now = self.world, host.node, self.world.agenda.now
        for effect in effects:
            match effect:
                case Stepped():
                    self._stepped(site, released, effect.step)
                case PublishReport():
                    whole = joined(effect.parts)
                    trades = _trades(whole.trades)
                    world.fact(FloorReported(now, site, whole.token, whole.state, trades, whole.confirmed))
                    topic = report_topic(CODE)
                    said = [OpaqueMessage(topic, encode_report(part)) for part in effect.parts]
                    self._publish(host, desk, effect.key, cut_opaque(said, _MOST))
                case PublishHalt():
                    halt = [OpaqueMessage(floor_topic(CODE), effect.payload)]
                    self._publish(host, desk, effect.key, cut_opaque(halt, _MOST))
                case PublishWake():
                    wake = [OpaqueMessage(floor_topic(CODE), effect.payload)]
                    self._publish(host, desk, effect.key, cut_opaque(wake, _MOST))
                case PublishPrints():
                    events = prints(CODE, effect.instant, effect.trades)
                    parts = [events[at : at + _EVENTS].tobytes() for at in range(0, len(events), _EVENTS)]
                    self._publish(host, desk, effect.key, parts)
                case TradesConfirmed():
                    trades = _trades(effect.trades)
                    world.fact(FloorConfirmed(now, site, released.epoch, effect.token, effect.reported, trades))
                case TradesBusted():
                    world.fact(FloorBusted(now, site, _trades(effect.trades)))
                case FloorDiverged():
                    world.fact(FloorDiffered(now, site, effect.token, "a report differs"))
                case ArbiterStopped():
                    world.fact(FloorDiffered(now, site, effect.token, f"stops: {effect.reason}"))
                case _:
                    assert_never(effect)

    def _stepped(self, site: NodeId, released: _Released, step: FloorStep) -> None:
        orders: list[tuple[int, int]] = []
        for message in released.event.messages:
            if message.topic == floor_topic(CODE):
                try:
                    event = decode_event(message.payload)
                except RemoteProtocolError:
                    continue
                if isinstance(event, Order | Lot):
                    orders.append((event.id, event.quantity))
                elif isinstance(event, Commit):
                    orders.append((event.id, _LOT_QUANTITY))
        state, trades = step.state_hash(), _trades(step.trades)
        self.world.fact(
            FloorStepped(
                self.world.agenda.now,
                site,
                released.epoch,
                step.token,
                state,
                trades,
                tuple(orders),
                released.event.is_replay,
                transcript_of_step(step),
            )
        )

    def _publish(self, host: SimulatedHost, desk: _Desk, key: bytes, payloads: Sequence[bytes]) -> None:
        """To the receiver's own source, in a moment, if the receiver still lives then."""
        agenda, life = self.world.agenda, host.machine
        batches = [(key + bytes([place]), payload) for place, payload in enumerate(payloads)]
        desk.waiting += 1

        def arrive(_: object) -> None:
            if host.machine is life:
                desk.waiting -= 1
                self.world.submit(self._source(host.node), batches)

        period_ns = self.world.settings.timing.token_period_ns
        agenda.put(agenda.now + round(self._delays.choice(_DELAYS) * period_ns), arrive, None)

    def _source(self, site: NodeId) -> NodeId:
        """The source of a receiver's reports."""
        if site not in self._sources:
            self._sources[site] = source_id(self.world.scenario.sources + site)
            self.world.add(self._sources[site])
        return self._sources[site]

    # Verdict ---------------------------------------------------------------------------------------------------

    def settled(self, correct: tuple[NodeId, ...]) -> bool:
        """Whether all trades are confirmed at these sites, everybody knows, and the tape has them."""
        if any(desk.waiting or desk.arbiter.unprinted for site, desk in self._desks.items() if site in correct):
            return False
        standing = self.standing(correct)
        return len(set(standing.values())) <= 1 and all(made == confirmed for made, confirmed in standing.values())

    def prints(self, site: NodeId) -> list[EventArray]:
        """Market events of the floor, as a site's journal has them, in order."""
        desk = self._desks[site]
        said = [one for released in desk.journal for one in released.event.messages if one.topic == tape_topic(CODE)]
        return [printed(CODE, one.payload) for one in said]

    def standing(self, correct: tuple[NodeId, ...]) -> dict[NodeId, tuple[int, int]]:
        """Of each of these sites, and of a customer as 0: how many trades were made, how many confirmed."""
        found: dict[NodeId, tuple[int, int]] = {}
        for site in correct:
            desk = self._desks.get(site)
            if desk is not None:
                found[site] = (desk.arbiter.floor.floor.next_trade - 1, desk.arbiter.confirmed)
        if self.customer is not None:
            found[0] = (self.customer.follower.floor.next_trade - 1, self.customer.confirmed)
        return found
