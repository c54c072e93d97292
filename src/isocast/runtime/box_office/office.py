"""The box office itself: what is sold to whom, for which periods, paid by what; and the packages.

An order is written down as pending before the provider is asked for money, and as paid, with its invoice, afterwards.
Whatever crashes in between, the provider knows the order's key: `settle` asks it, and either the order is paid or no
money moved. A package is made from paid orders when it is fetched. So whoever has paid can fetch.

Keys of a period are given out at most `lead_ns` before it begins: who is revoked loses what begins later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from secrets import token_bytes, token_urlsafe
from time import time_ns
from typing import Any, Final, NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Connection, Row, and_, delete, func, insert, select, update

from isocast.runtime.box_office.audit import AuditEntry, AuditLog
from isocast.runtime.box_office.database import (
    INVOICES,
    ORDERS,
    PACKAGES,
    PLANS,
    STANDING,
    SUBSCRIBERS,
    TOKENS,
    OfficeDatabase,
)
from isocast.runtime.box_office.payments import Charge, PaymentProvider, check_instrument
from isocast.runtime.net.sign_in import PASSWORD_STRETCHING, hash_password, is_password
from isocast.security.identities import Identity
from isocast.security.keys import Purpose, SecretKey
from isocast.security.packages import (
    KEYS_MAX,
    NONCE_BYTES,
    SALT_BYTES,
    SECRET_BYTES,
    STRETCHING,
    Mask,
    Stretching,
    card_secret,
    check_name,
    mask_of,
    read_label,
    seal_package,
    write_secret,
)
from isocast.security.subscriptions import check_service, period_of, service_key
from isocast.terms.errors import ConfigurationError, LocalProtocolError, OfficeError, OfficeFault
from isocast.terms.instants import SECOND

__all__ = [
    "OPERATOR",
    "BoxOffice",
    "Enrolment",
    "Invoice",
    "OfficeKeys",
    "OfficeOrder",
    "OfficePlan",
    "Renewal",
    "Subscriber",
]

OPERATOR: Final = "operator"
"""Who acts, in the audit log, where it is not a subscriber."""

_PERIODS_MAX = 366
_AHEAD_MAX = 400
"""Periods that may be bought, and how far ahead: a price is not for ever."""
_PAST_PERIODS = 7
"""Keys of so many periods before this one are in a package, if they were bought: for what is repaired late."""
_SERVICES_MAX = KEYS_MAX // (_PAST_PERIODS + 2)
_PLAN_BYTES_MAX = 64
_TITLE_BYTES_MAX = 200
_PASSWORD_BYTES = 15
_PASSWORD_MAX = 256
_KEY_MAX = 200
_PRICE_MAX = 10**12
_SESSION_NS = 12 * 3_600 * SECOND
_SESSIONS_MAX = 16
"""Of one subscriber; the oldest ends when another begins."""
_ABANDONED_NS = 600 * SECOND
"""An order of which the provider has not heard for so long never will be paid."""
_REASON_MAX = 200
_MASK_PART = int.from_bytes(b"mask")


@dataclass(frozen=True, slots=True)
class OfficeKeys:
    """The secrets of a box office."""

    market_name: str
    market: bytes
    identity: Identity
    """Signs packages; the roster lists it."""
    region: SecretKey
    """All keys of services and periods come from it."""
    vault: SecretKey
    """Seals what the database must not tell."""


class OfficePlan(NamedTuple):
    """What is sold."""

    name: str
    title: str
    services: tuple[str, ...]
    price: int
    """Of one period, in minor units."""
    currency: str
    on_sale: bool = True


class Subscriber(NamedTuple):
    """Who buys."""

    id: int
    name: str
    created_ns: int
    revoked_ns: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A new subscriber, or one with new secrets: shown once, and kept nowhere."""

    name: str
    password: str = field(repr=False)
    secret: str = field(repr=False)
    """Opens packages; empty where it is a card number that he knows."""


class OfficeOrder(NamedTuple):
    """Periods of a plan for a subscriber."""

    id: int
    subscriber: int
    plan: str
    services: tuple[str, ...]
    first_period: int
    periods: int
    amount: int
    currency: str
    state: str
    """`pending`, `paid`, `declined` or `void` (never charged)."""
    created_ns: int
    begins_ns: int
    ends_ns: int


class Invoice(NamedTuple):
    """A paid order, on paper."""

    number: int
    order: int
    issued_ns: int
    text: str


class Renewal(NamedTuple):
    """What became of a plan that was due."""

    subscriber: str
    plan: str
    state: str
    """Of the order; `unavailable`: asked for again later."""
    ends_ns: int


_COVERING = ("paid", "pending")


class BoxOffice:
    """Sells, renews, revokes, and gives out packages; threads may share it."""

    def __init__(
        self,
        database: OfficeDatabase,
        keys: OfficeKeys,
        payments: PaymentProvider,
        *,
        clock: Callable[[], int] = time_ns,
        stretching: Stretching = STRETCHING,
        passwords: Stretching = PASSWORD_STRETCHING,
    ) -> None:
        """ConfigurationError for a database of another market; what a guess costs is for tests to change."""
        settings = database.settings()
        if settings["market"] != keys.market.hex():
            rule = f"{database.place} is the box office of another market, {settings['market name']}"
            raise ConfigurationError("box office", "database", f"{rule}: give another --database")
        self.length_ns = int(settings["length"])
        self.lead_ns = int(settings["lead"])
        self.market_name = keys.market_name
        self._database = database
        self._keys = keys
        self._payments = payments
        self._clock = clock
        self._stretching = stretching
        self._passwords = passwords
        self._audit = AuditLog(keys.vault)

    @staticmethod
    def create(database: OfficeDatabase, keys: OfficeKeys, length_ns: int, lead_ns: int) -> bool:
        """Make the tables; False if they are there."""
        if not 0 < lead_ns <= length_ns // 2:
            rule = "is how long before a period its keys are given out: more than nothing, at most half a period"
            raise ConfigurationError("box office", "lead", rule)
        market = {"market": keys.market.hex(), "market name": keys.market_name}
        return database.create({**market, "length": str(length_ns), "lead": str(lead_ns)})

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    # ---- plans

    def set_plan(self, plan: OfficePlan, actor: str = OPERATOR) -> OfficePlan:
        """Put a plan on sale, change it, or take it off sale; orders that exist stay as they are."""
        plan = _checked_plan(plan)
        row = {**plan._asdict(), "services": " ".join(plan.services)}
        with self._database.writing() as connection:
            connection.execute(delete(PLANS).where(PLANS.c.name == plan.name))
            connection.execute(insert(PLANS), [row])
            self._audit.add(connection, self._clock(), actor, "plan", plan.name, **row)
        return plan

    def plans(self, *, on_sale: bool = False) -> list[OfficePlan]:
        """All plans, or those that can be bought."""
        with self._database.reading() as connection:
            rows = connection.execute(select(PLANS).order_by(PLANS.c.name)).all()
        found = [_plan(row) for row in rows]
        return [plan for plan in found if plan.on_sale or not on_sale]

    # ---- subscribers

    def enrol(self, name: str, *, card: str | None = None, actor: str = OPERATOR) -> Enrolment:
        """A new subscriber, with a password and a secret of his own, or a test card as his secret."""
        row, enrolment = self._secrets(_checked(check_name, name), card)
        with self._database.writing() as connection:
            if connection.execute(select(SUBSCRIBERS.c.id).where(SUBSCRIBERS.c.name == name)).first():
                raise OfficeError(OfficeFault.CONFLICT, f"there is a subscriber {name}: choose another name")
            number = _next(connection, SUBSCRIBERS.c.id)
            row |= {"instrument": "", "created_ns": self._clock(), "revoked_ns": None, "reason": ""}
            mask = self._sealed_mask(number, row.pop("mask"))
            connection.execute(insert(SUBSCRIBERS), [{"id": number, "name": name, "mask": mask, **row}])
            self._audit.add(connection, self._clock(), actor, "enrol", name, card=card is not None)
        return enrolment

    def reset(self, name: str, *, card: str | None = None, actor: str = OPERATOR) -> Enrolment:
        """New password and secret for a subscriber who lost one; his sessions end, and packages are made anew."""
        row, enrolment = self._secrets(name, card)
        with self._database.writing() as connection:
            number = self._named(connection, name).id
            row["mask"] = self._sealed_mask(number, row["mask"])
            connection.execute(update(SUBSCRIBERS).where(SUBSCRIBERS.c.id == number).values(**row))
            connection.execute(delete(TOKENS).where(TOKENS.c.subscriber == number))
            self._audit.add(connection, self._clock(), actor, "reset", name, card=card is not None)
        return enrolment

    def _secrets(self, name: str, card: str | None) -> tuple[dict[str, Any], Enrolment]:
        """What is kept of new secrets, and the secrets; slow."""
        password, salt = token_urlsafe(_PASSWORD_BYTES), token_bytes(SALT_BYTES)
        secret = token_bytes(SECRET_BYTES) if card is None else card_secret(card)
        mask = mask_of(secret, salt, self._stretching).key
        row = {"password": hash_password(password, self._passwords), "salt": salt, "mask": mask}
        return row, Enrolment(name, password, write_secret(secret) if card is None else "")

    def _sealed_mask(self, number: int, mask: bytes) -> bytes:
        nonce = token_bytes(NONCE_BYTES)
        return nonce + self._vault(number).encrypt(nonce, mask, None)

    def _vault(self, number: int) -> AESGCM:
        return AESGCM(self._keys.vault.derive(Purpose.SEAL, number, _MASK_PART))

    def subscribers(self) -> list[Subscriber]:
        """All of them, by name."""
        with self._database.reading() as connection:
            return [_subscriber(row) for row in connection.execute(select(SUBSCRIBERS).order_by(SUBSCRIBERS.c.name))]

    def subscriber(self, name: str) -> Subscriber:
        """Who has this name; OfficeError if nobody has."""
        with self._database.reading() as connection:
            return _subscriber(self._named(connection, name))

    def _named(self, connection: Connection, name: str) -> Row[Any]:
        row = connection.execute(select(SUBSCRIBERS).where(SUBSCRIBERS.c.name == name)).first()
        if row is None:
            raise OfficeError(
                OfficeFault.UNKNOWN, f"there is no subscriber {name!r}: isocast box-office show lists them"
            )
        return row

    def revoke(self, name: str, reason: str = "", *, undo: bool = False, actor: str = OPERATOR) -> Subscriber:
        """Give a subscriber no further package, and renew nothing for him; keys that he has count to their end."""
        if len(reason) > _REASON_MAX:
            raise OfficeError(OfficeFault.BAD_REQUEST, f"a reason has at most {_REASON_MAX} letters")
        with self._database.writing() as connection:
            who = self._named(connection, name)
            values = {"revoked_ns": None if undo else self._clock(), "reason": "" if undo else reason}
            connection.execute(update(SUBSCRIBERS).where(SUBSCRIBERS.c.id == who.id).values(**values))
            connection.execute(delete(STANDING).where(STANDING.c.subscriber == who.id))
            self._audit.add(connection, self._clock(), actor, "restore" if undo else "revoke", name, reason=reason)
            return _subscriber(self._named(connection, name))

    # ---- sessions

    @cached_property
    def _nobody(self) -> str:
        """Whoever does not exist has a password, too, that nobody knows: a login takes as long for him."""
        return hash_password(token_urlsafe(), self._passwords)

    def log_in(self, name: str, password: str) -> tuple[str, int]:
        """A token and when it ends; OfficeError, the same for a wrong name and a wrong password."""
        with self._database.reading() as connection:
            who = connection.execute(select(SUBSCRIBERS).where(SUBSCRIBERS.c.name == name)).first()
        nobody = self._nobody  # Made at the first login, whoever it is.
        kept = nobody if who is None else who.password
        if not is_password(password[:_PASSWORD_MAX], kept) or who is None or len(password) > _PASSWORD_MAX:
            raise OfficeError(OfficeFault.UNAUTHORISED, "name and password do not belong together: try again")
        return self._new_token(who.id, _SESSION_NS)

    def operator_token(self, lasts_ns: int) -> tuple[str, int]:
        """A token for programs of the operator's."""
        return self._new_token(None, lasts_ns)

    def _new_token(self, subscriber: int | None, lasts_ns: int) -> tuple[str, int]:
        token, now = token_urlsafe(32), self._clock()
        with self._database.writing() as connection:
            connection.execute(delete(TOKENS).where(TOKENS.c.ends_ns <= now))
            mine = select(TOKENS.c.digest).where(TOKENS.c.subscriber == subscriber)
            open_ones = connection.execute(mine.order_by(TOKENS.c.ends_ns)).scalars().all()
            if subscriber is not None and len(open_ones) >= _SESSIONS_MAX:
                connection.execute(delete(TOKENS).where(TOKENS.c.digest == open_ones[0]))
            row = {"digest": _digest(token), "subscriber": subscriber, "ends_ns": now + lasts_ns}
            connection.execute(insert(TOKENS), [row])
        return token, now + lasts_ns

    def whose(self, token: str) -> Subscriber | None:
        """Whose session it is, None for an operator's; OfficeError for one that is over or never was."""
        # Looked up by a hash: how long that takes says nothing about a token.
        joined = select(TOKENS.c.ends_ns, SUBSCRIBERS).outerjoin_from(
            TOKENS, SUBSCRIBERS, TOKENS.c.subscriber == SUBSCRIBERS.c.id
        )
        with self._database.reading() as connection:
            row = connection.execute(joined.where(TOKENS.c.digest == _digest(token))).first()
        if row is None or row.ends_ns <= self._clock():
            raise OfficeError(OfficeFault.UNAUTHORISED, "log in first: the session is over, or never was")
        return None if row.id is None else _subscriber(row)

    def log_out(self, token: str) -> None:
        """End a session."""
        with self._database.writing() as connection:
            connection.execute(delete(TOKENS).where(TOKENS.c.digest == _digest(token)))

    # ---- orders

    def buy(
        self,
        name: str,
        plan: str,
        *,
        key: str,
        instrument: str = "",
        periods: int = 1,
        renews: bool = False,
        actor: str = "",
    ) -> OfficeOrder:
        """Buy periods of a plan from now on, or from the end of what is bought; the same key buys once.

        `instrument`: the payment provider's word; left out, the one used last. OfficeError of kind DECLINED if it is
        not paid; of kind UNAVAILABLE if that is not known yet: ask again with the same key.
        """
        if not 0 < len(key) <= _KEY_MAX or not key.isprintable():
            raise OfficeError(OfficeFault.BAD_REQUEST, f"an idempotency key has 1 to {_KEY_MAX} printable letters")
        if not 1 <= periods <= _PERIODS_MAX:
            raise OfficeError(OfficeFault.BAD_REQUEST, f"buy 1 to {_PERIODS_MAX} periods at once")
        if instrument:
            check_instrument(instrument)
        asked = json.dumps([plan, periods, renews])
        key = _digest(key)  # It is the customer's text, and may be anything that is not to be kept.
        with self._database.writing() as connection:
            who = self._named(connection, name)
            mine = and_(ORDERS.c.subscriber == who.id, ORDERS.c.key == key)
            row = connection.execute(select(ORDERS).where(mine)).first()
            if row is None:
                self._write_order(connection, who, plan, periods, key, asked, instrument, actor or name)
                row = connection.execute(select(ORDERS).where(mine)).one()
            elif row.asked != asked:
                raise OfficeError(OfficeFault.CONFLICT, "this idempotency key bought something else: use a new one")
        order = self._charged(row, name, renews=renews, actor=actor or name)
        if order.state != "paid":
            reason = "the payment was declined: give another means of payment, and a new idempotency key"
            raise OfficeError(OfficeFault.DECLINED, reason)
        return order

    def _write_order(
        self,
        connection: Connection,
        who: Row[Any],
        plan_name: str,
        periods: int,
        key: str,
        asked: str,
        instrument: str,
        actor: str,
    ) -> None:
        """A pending order, for the first periods of the plan that this subscriber has not ordered yet."""
        if who.revoked_ns is not None:
            raise OfficeError(OfficeFault.FORBIDDEN, f"the subscription of {who.name} was revoked: ask the operator")
        if not instrument and not who.instrument:
            raise OfficeError(OfficeFault.BAD_REQUEST, "there is no means of payment yet: give one")
        found = connection.execute(select(PLANS).where(PLANS.c.name == plan_name, PLANS.c.on_sale)).first()
        if found is None:
            raise OfficeError(OfficeFault.UNKNOWN, f"there is no plan {plan_name!r} on sale: look at the list of plans")
        plan, now = _plan(found), self._clock()
        current = period_of(now, self.length_ns)
        first = max(current, self._ordered_until(connection, who.id, plan.name))
        if first + periods > current + _AHEAD_MAX:
            raise OfficeError(OfficeFault.BAD_REQUEST, f"at most {_AHEAD_MAX} periods are sold ahead")
        number = _next(connection, ORDERS.c.id)
        row = {
            "id": number,
            "subscriber": who.id,
            "plan": plan.name,
            "services": " ".join(plan.services),
            "first_period": first,
            "periods": periods,
            "amount": plan.price * periods,
            "currency": plan.currency,
            "key": key,
            "asked": asked,
            "instrument": instrument or who.instrument,
            "state": "pending",
            "reference": "",
            "created_ns": now,
            "settled_ns": None,
        }
        connection.execute(insert(ORDERS), [row])
        detail = {name: row[name] for name in ("plan", "first_period", "periods", "amount", "currency")}
        self._audit.add(connection, now, actor, "order", who.name, order=number, **detail)

    def _ordered_until(self, connection: Connection, subscriber: int, plan: str) -> int:
        """The first period after all that are ordered of a plan; 0: there are none."""
        ends = func.max(ORDERS.c.first_period + ORDERS.c.periods)
        mine = and_(ORDERS.c.subscriber == subscriber, ORDERS.c.plan == plan, ORDERS.c.state.in_(_COVERING))
        return int(connection.execute(select(ends).where(mine)).scalar() or 0)

    def _charged(self, row: Row[Any], name: str, *, renews: bool, actor: str) -> OfficeOrder:
        """An order with its money; no transaction is open while the provider is asked."""
        if row.state != "pending":
            return self._order(row)
        try:
            charge = self._payments.charge(self._payment_key(row.id), row.amount, row.currency, row.instrument)
        except OSError:
            reason = "the payment provider does not answer: try again with the same idempotency key"
            raise OfficeError(OfficeFault.UNAVAILABLE, reason) from None
        return self._settled(row.id, name, charge, renews=renews, actor=actor)

    def _payment_key(self, order: int) -> str:
        """Under which the provider knows an order: no other office's."""
        return f"isocast/{self._keys.market.hex()[:16]}/{order}"

    def _settled(self, number: int, name: str, charge: Charge | None, *, renews: bool, actor: str) -> OfficeOrder:
        """Write down what the provider said; once, whoever comes first."""
        state = "void" if charge is None else "paid" if charge.accepted else "declined"
        now = self._clock()
        with self._database.writing() as connection:
            row = connection.execute(select(ORDERS).where(ORDERS.c.id == number)).one()
            if row.state == "pending":
                reference = "" if charge is None else charge.reference
                values = {"state": state, "reference": reference, "settled_ns": now}
                connection.execute(update(ORDERS).where(ORDERS.c.id == number).values(**values))
                if state == "paid":
                    self._write_invoice(connection, row, name, now)
                    paid_by = update(SUBSCRIBERS).where(SUBSCRIBERS.c.id == row.subscriber)
                    connection.execute(paid_by.values(instrument=row.instrument))
                    if renews:
                        _stand(connection, row.subscriber, row.plan)
                self._audit.add(connection, now, actor, state, name, order=number, reference=reference)
                row = connection.execute(select(ORDERS).where(ORDERS.c.id == number)).one()
            return self._order(row)

    def _write_invoice(self, connection: Connection, order: Row[Any], name: str, now: int) -> None:
        number = _next(connection, INVOICES.c.number)
        what = f"{order.plan}, periods {order.first_period} to {order.first_period + order.periods - 1}"
        text = f"{name}: {what}, {order.amount} {order.currency} (minor units), paid by {self._payments.name}"
        row = {"number": number, "order": order.id, "issued_ns": now, "text": text}
        connection.execute(insert(INVOICES), [row])

    def settle(self, name: str | None = None) -> list[OfficeOrder]:
        """Ask the provider about orders, of one subscriber or all, that a crash left pending: each is paid, or not."""
        joined = select(ORDERS, SUBSCRIBERS.c.name.label("buyer")).join_from(
            ORDERS, SUBSCRIBERS, ORDERS.c.subscriber == SUBSCRIBERS.c.id
        )
        pending = joined.where(ORDERS.c.state == "pending")
        with self._database.reading() as connection:
            waiting = connection.execute(pending if name is None else pending.where(SUBSCRIBERS.c.name == name)).all()
        settled = []
        for row in waiting:
            charge = self._payments.find(self._payment_key(row.id))
            if charge is not None or row.created_ns + _ABANDONED_NS <= self._clock():
                renews = bool(json.loads(row.asked)[2])
                settled.append(self._settled(row.id, row.buyer, charge, renews=renews, actor=OPERATOR))
        return settled

    def orders(self, name: str | None = None) -> list[OfficeOrder]:
        """All orders, or those of one subscriber, the newest first."""
        with self._database.reading() as connection:
            query = select(ORDERS).order_by(ORDERS.c.id.desc())
            if name is not None:
                query = query.where(ORDERS.c.subscriber == self._named(connection, name).id)
            return [self._order(row) for row in connection.execute(query)]

    def invoices(self, name: str | None = None) -> list[Invoice]:
        """All invoices, or those of one subscriber, the newest first."""
        with self._database.reading() as connection:
            query = select(INVOICES).order_by(INVOICES.c.number.desc())
            if name is not None:
                query = query.join_from(INVOICES, ORDERS, INVOICES.c.order == ORDERS.c.id)
                query = query.where(ORDERS.c.subscriber == self._named(connection, name).id)
            return [Invoice(*row) for row in connection.execute(query)]

    def _order(self, row: Row[Any]) -> OfficeOrder:
        begins, ends = row.first_period * self.length_ns, (row.first_period + row.periods) * self.length_ns
        services = tuple(row.services.split())
        what = (row.first_period, row.periods, row.amount, row.currency, row.state, row.created_ns)
        return OfficeOrder(row.id, row.subscriber, row.plan, services, *what, begins, ends)

    # ---- renewals

    def standing(self, name: str) -> list[str]:
        """The plans that are renewed for a subscriber."""
        with self._database.reading() as connection:
            mine = STANDING.c.subscriber == self._named(connection, name).id
            return list(connection.execute(select(STANDING.c.plan).where(mine).order_by(STANDING.c.plan)).scalars())

    def stand(self, name: str, plan: str, *, renews: bool, actor: str = "") -> None:
        """Renew a plan that was bought before it ends, or no longer."""
        with self._database.writing() as connection:
            who = self._named(connection, name)
            if renews and not self._ordered_until(connection, who.id, plan):
                raise OfficeError(OfficeFault.CONFLICT, f"{plan!r} was never bought by {name}: buy it first")
            if renews and who.revoked_ns is not None:
                raise OfficeError(OfficeFault.FORBIDDEN, f"the subscription of {name} was revoked: ask the operator")
            connection.execute(delete(STANDING).where(STANDING.c.subscriber == who.id, STANDING.c.plan == plan))
            if renews:
                _stand(connection, who.id, plan)
            self._audit.add(connection, self._clock(), actor or name, "renewal", name, plan=plan, renews=renews)

    def renew_due(self) -> list[Renewal]:
        """Sell the next period to everybody whose plan stands and ends soon.

        That is two leads before the end: one before keys of the next period are given out, so that a payment that
        fails can be tried again. Whoever is asked twice is charged once.
        """
        now, due = self._clock(), []
        with self._database.reading() as connection:
            joined = select(STANDING.c.plan, SUBSCRIBERS.c.name, SUBSCRIBERS.c.id).join_from(
                STANDING, SUBSCRIBERS, STANDING.c.subscriber == SUBSCRIBERS.c.id
            )
            rows = connection.execute(joined.where(SUBSCRIBERS.c.revoked_ns.is_(None)).order_by(SUBSCRIBERS.c.id)).all()
            for row in rows:
                until = self._ordered_until(connection, row.id, row.plan)
                if until * self.length_ns - now <= 2 * self.lead_ns:
                    due.append((row.name, row.plan, max(until, period_of(now, self.length_ns))))
        return [self._renewed(*what) for what in due]

    def _renewed(self, name: str, plan: str, period: int) -> Renewal:
        # A declined payment is tried again with another key each hour: the provider answers the same to the same key.
        key = f"renewal/{plan}/{period}/{self._clock() // (3_600 * SECOND)}"
        try:
            order = self.buy(name, plan, key=key, renews=True, actor=OPERATOR)
        except OfficeError as error:
            return Renewal(name, plan, error.fault.value, period * self.length_ns)
        return Renewal(name, plan, order.state, order.ends_ns)

    # ---- packages

    def package(self, name: str) -> bytes:
        """The keys of what a subscriber has paid for, now and next; OfficeError if there are none, or he is revoked."""
        self.settle(name)
        now = self._clock()
        with self._database.writing() as connection:
            who = self._named(connection, name)
            if who.revoked_ns is not None:
                raise OfficeError(OfficeFault.FORBIDDEN, f"the subscription of {name} was revoked: ask the operator")
            bought = self._bought(connection, who.id, now)
            if not any((period + 1) * self.length_ns > now for period, _ in bought):
                raise OfficeError(OfficeFault.DECLINED, "nothing is paid for now: buy a plan")
            contents = json.dumps([self._keys.identity.fingerprint, bytes(who.salt).hex(), bought])
            mine = and_(PACKAGES.c.subscriber == who.id, PACKAGES.c.contents == contents)
            made = connection.execute(select(PACKAGES.c.raw).where(mine)).scalar()
            if made is not None:
                return bytes(made)
            number = _next(connection, PACKAGES.c.number)
            raw = self._sealed(who, bought, number, now)
            row = {"number": number, "subscriber": who.id, "contents": contents, "issued_ns": now, "raw": raw}
            connection.execute(insert(PACKAGES), [row])
            label = read_label(raw)
            self._audit.add(connection, now, name, "package", name, number=number, begins=label.begins, ends=label.ends)
        return raw

    def _bought(self, connection: Connection, subscriber: int, now: int) -> list[tuple[int, str]]:
        """Period and service of every key that a subscriber may have now, in order."""
        current = period_of(now, self.length_ns)
        last = period_of(now + self.lead_ns, self.length_ns)
        mine = and_(ORDERS.c.subscriber == subscriber, ORDERS.c.state == "paid")
        reaches = ORDERS.c.first_period + ORDERS.c.periods > current - _PAST_PERIODS
        rows = connection.execute(select(ORDERS).where(mine, reaches, ORDERS.c.first_period <= last)).all()
        found = {
            (period, service)
            for row in rows
            for period in range(max(row.first_period, current - _PAST_PERIODS), row.first_period + row.periods)
            if period <= last
            for service in row.services.split()
        }
        return sorted(found)[-KEYS_MAX:]

    def _sealed(self, who: Row[Any], bought: Sequence[tuple[int, str]], number: int, now: int) -> bytes:
        sealed = bytes(who.mask)
        key = self._vault(who.id).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], None)
        return seal_package(
            self._keys.identity,
            Mask(bytes(who.salt), self._stretching, key),
            market=self._keys.market,
            market_name=self._keys.market_name,
            buyer=who.name,
            keys=[service_key(self._keys.region, service, period, self.length_ns) for period, service in bought],
            number=number,
            issued=now,
            nonce=token_bytes(NONCE_BYTES),
        )

    # ---- the audit log

    def audit(self, after: int = 0) -> list[AuditEntry]:
        """The log after an entry."""
        with self._database.reading() as connection:
            return list(self._audit.entries(connection, after))

    def audit_fault(self) -> str:
        """What is wrong with the log; empty: nothing was changed, taken out or added by anybody else."""
        with self._database.reading() as connection:
            return self._audit.fault(connection)


def _next(connection: Connection, column: Any) -> int:  # noqa: ANN401 - a column of any table
    """The next number, without a gap: whoever writes is alone."""
    return int(connection.execute(select(func.max(column))).scalar() or 0) + 1


def _stand(connection: Connection, subscriber: int, plan: str) -> None:
    mine = and_(STANDING.c.subscriber == subscriber, STANDING.c.plan == plan)
    if connection.execute(select(STANDING).where(mine)).first() is None:
        connection.execute(insert(STANDING), [{"subscriber": subscriber, "plan": plan}])


def _digest(token: str) -> str:
    return sha256(token.encode(errors="replace")).hexdigest()


def _plan(row: Row[Any]) -> OfficePlan:
    return OfficePlan(row.name, row.title, tuple(row.services.split()), row.price, row.currency, row.on_sale)


def _subscriber(row: Row[Any]) -> Subscriber:
    return Subscriber(row.id, row.name, row.created_ns, row.revoked_ns, row.reason)


def _checked(check: Callable[..., str], *what: object) -> str:
    try:
        return check(*what)
    except LocalProtocolError as error:
        raise OfficeError(OfficeFault.BAD_REQUEST, str(error)) from None


def _checked_plan(plan: OfficePlan) -> OfficePlan:
    _checked(check_name, plan.name, "a plan", _PLAN_BYTES_MAX)
    _checked(check_name, plan.title, "a plan's title", _TITLE_BYTES_MAX)
    services = tuple(dict.fromkeys(_checked(check_service, service) for service in plan.services))
    if not 0 < len(services) <= _SERVICES_MAX:
        raise OfficeError(
            OfficeFault.BAD_REQUEST, f"a plan has 1 to {_SERVICES_MAX} services: base, repair, stripe:3 …"
        )
    if not 0 <= plan.price <= _PRICE_MAX:
        raise OfficeError(OfficeFault.BAD_REQUEST, f"a price is 0 to {_PRICE_MAX:,} minor units")
    if len(plan.currency) != 3 or not plan.currency.isascii() or not plan.currency.isupper():  # noqa: PLR2004
        raise OfficeError(OfficeFault.BAD_REQUEST, "a currency has three capital letters, such as EUR")
    return plan._replace(services=services)
