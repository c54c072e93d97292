"""A ring as its log: tokens with an owner, what is stable, and who has released them. No network and no time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tests.floor.cases import BUY, SELL, SYMBOL, order
from tests.floor.keys import key_in_order

from isocast.floor.arbiter import (
    Arbiter,
    ArbiterEffect,
    ArbiterStopped,
    FloorDiverged,
    PublishHalt,
    PublishPrints,
    PublishReport,
    PublishWake,
    TokenReleased,
    TradesBusted,
    TradesConfirmed,
    Truncated,
)
from isocast.floor.codec import encode_event
from isocast.floor.confirming import ConfirmationFollower, Confirmed, News, ReportDiffers
from isocast.floor.events import Directory, Event, Phase, Trade
from isocast.floor.following import FloorFollower, FloorMessage
from isocast.floor.printing import prints, tape_topic
from isocast.floor.reporting import encode_report

CODE = "XISO"
OPEN = Directory(SYMBOL, phase=Phase.OPEN)


@dataclass
class Site:
    """A primary receiver: its arbiter, and what the driver did for it."""

    arbiter: Arbiter
    is_up: bool = True
    journal: list[TokenReleased] = field(default_factory=list)
    effects: list[ArbiterEffect] = field(default_factory=list)
    outbox: dict[bytes, list[tuple[str, bytes]]] = field(default_factory=dict)
    """Published under a key, and not in the sequence yet."""
    keys: set[bytes] = field(default_factory=set)
    confirmed: dict[int, Trade] = field(default_factory=dict)

    def of(self, kind: type[ArbiterEffect]) -> list[ArbiterEffect]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    @property
    def reports(self) -> list[PublishReport]:
        return [effect for effect in self.effects if isinstance(effect, PublishReport)]


class Ring:
    """Everybody of `sites` is in U. The ring's tokens are numbered on through all its formations."""

    def __init__(self, size: int = 4, arbiter: type[Arbiter] = Arbiter) -> None:
        self.arbiter = arbiter
        self.universe = tuple(range(1, size + 1))
        self.sites = {site: Site(arbiter(CODE, site)) for site in self.universe}
        self.members = self.universe
        self.first_token = 1
        self.token = 0
        self.sequence = 0
        self.customer = ConfirmationFollower(FloorFollower(CODE))
        self.news: list[News] = []
        self.log: list[TokenReleased] = []

    @property
    def next_owner(self) -> int:
        return self.members[(self.token + 1 - self.first_token) % len(self.members)]

    def issue(
        self,
        *events: Event,
        skip: Iterable[int] = (),
        reports: bool = True,
        others: bytes | None = None,
        foreign: Iterable[tuple[str, bytes, int | None]] = (),
    ) -> int:
        """The next token: some events, and all reports that wait at sites that run; `skip`: who does not release it.

        `foreign` are messages of whoever else got them into the sequence: topic, payload, and in whose name.
        """
        owner, size = self.next_owner, len(self.members)
        self.token += 1
        written: list[tuple[str, bytes, int | None]] = [(f"floor/{CODE}", encode_event(one), None) for one in events]
        written += foreign
        if others is not None:
            written.append((f"floor/{CODE}/report", others, None))
        for number in self.members if reports else ():
            site = self.sites[number]
            if site.is_up:
                for parts in site.outbox.values():
                    written += [(topic, part, number) for topic, part in parts]
                site.outbox.clear()
        key = key_in_order(f"floor/{CODE}", [one[:2] for one in written])
        messages = [FloorMessage(self._next(), topic, payload, key, site) for topic, payload, site in written]
        possession = self.token - size + 1
        stable = possession if possession >= self.first_token else 0
        event = TokenReleased(self.token, 10 * self.token, stable, size, self.universe, tuple(messages))
        self.log.append(event)
        for number in self.members:
            if self.sites[number].is_up and number not in skip:
                self.release(number, replace(event, is_own=number == owner))
        for message in messages:
            self.news += self.customer.hear(self.token, event.instant, message)
        return self.token

    def _next(self) -> int:
        self.sequence += 1
        return self.sequence

    def release(self, number: int, event: TokenReleased) -> None:
        site = self.sites[number]
        if not event.is_replay:
            site.journal.append(event)
        for effect in site.arbiter.step(event):
            site.effects.append(effect)
            if isinstance(effect, PublishReport) and effect.key not in site.keys:
                site.keys.add(effect.key)
                site.outbox[effect.key] = [(f"floor/{CODE}/report", encode_report(part)) for part in effect.parts]
            elif isinstance(effect, PublishHalt | PublishWake) and effect.key not in site.keys:
                site.keys.add(effect.key)
                site.outbox[effect.key] = [(f"floor/{CODE}", effect.payload)]
            elif isinstance(effect, PublishPrints) and effect.key not in site.keys:
                site.keys.add(effect.key)
                events = prints(CODE, effect.instant, effect.trades)
                site.outbox[effect.key] = [(tape_topic(CODE), events.tobytes())]
            elif isinstance(effect, TradesConfirmed):
                for trade in effect.trades:
                    known = site.confirmed.setdefault(trade.number, trade)
                    assert known == trade, "a confirmed trade has changed"

    def idle(self, tokens: int) -> None:
        for _ in range(tokens):
            self.issue()

    def trade(self, number: int = 1, **how: bool) -> int:
        """A token with one trade: two orders of these and the following id."""
        return self.issue(order(number, SELL, 5, 100), order(number + 1, BUY, 5, 100), **how)  # type: ignore[arg-type]

    def crash(self, number: int, *, loses_outbox: bool = True) -> None:
        site = self.sites[number]
        site.is_up = False
        if loses_outbox:
            site.keys -= set(site.outbox)
            site.outbox.clear()

    def reform(self, *members: int) -> None:
        """A ring of these, behind the newest token: all of them hold it, and release what they lack."""
        self.members, self.first_token = members, self.token + 1
        for number in members:
            self.catch_up(number)

    def catch_up(self, number: int) -> None:
        site = self.sites[number]
        for event in self.log[site.arbiter.token :]:
            self.release(number, event)

    def restart(self, number: int) -> None:
        """From the last agreed snapshot and the site's journal."""
        site = self.sites[number]
        site.arbiter = self.arbiter(CODE, number, site.arbiter.snapshot())
        site.is_up = True
        for event in site.journal[site.arbiter.token :]:
            self.release(number, replace(event, is_replay=True))

    def cut(self, token: int) -> None:
        """A reformation cuts the log of everybody behind a token: for once no majority held it."""
        self.log = self.log[:token]
        self.token, self.first_token = token, token + 1
        for site in self.sites.values():
            site.journal = site.journal[:token]
            site.effects += site.arbiter.step(Truncated(token))

    # What must always hold ---------------------------------------------------------------------------------------

    def confirmed(self) -> dict[int, Trade]:
        """All that any site ever confirmed; no two of them differ."""
        found: dict[int, Trade] = {}
        for site in self.sites.values():
            for number, trade in site.confirmed.items():
                assert found.setdefault(number, trade) == trade, "two sites confirmed two trades of one number"
        return found

    def heard(self) -> list[Trade]:
        """What the customer was told to be confirmed, in order."""
        return [trade for news in self.news if isinstance(news, Confirmed) for trade in news.trades]

    def alarms(self) -> list[object]:
        found: list[object] = [news for news in self.news if isinstance(news, ReportDiffers)]
        for site in self.sites.values():
            found += [
                effect for effect in site.effects if isinstance(effect, FloorDiverged | ArbiterStopped | TradesBusted)
            ]
        return found
