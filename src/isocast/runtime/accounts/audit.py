"""Do the books add up? Everything is added up again from the entries, by the database itself.

A gateway asks at its start what it has reserved (`check_reserved`), and trades only if that is what its orders need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby

from sqlalchemy import Connection, Table, and_, case, func, literal, or_, select, union_all

from isocast.orders.accounts import (
    CLEARING,
    FIRST_TRADER,
    TRADERS_MAX,
    account_number,
    amount_text,
    house_name,
    is_house,
)
from isocast.orders.ledger import EntryKind, Pot
from isocast.orders.netting import Netting
from isocast.runtime.accounts.order_store import OrderMemory, holder_of, is_order
from isocast.runtime.accounts.posting import execute
from isocast.runtime.accounts.tables import (
    ACCOUNTS,
    BALANCES,
    ENTRIES,
    LIMITS,
    POSTINGS,
    RESERVATIONS,
    AccountsDatabase,
)
from isocast.terms.errors import LedgerError, LedgerFault

__all__ = ["BooksAudit", "audit", "check_reserved", "clearing_of_all", "differences_of_orders", "net_between"]

_FINDINGS_MAX = 100
"""That are told one by one; the rest is counted."""


@dataclass(slots=True)
class BooksAudit:
    """What was counted in one gateway's books, and what does not add up."""

    gateway: int
    place: str
    accounts: int = 0
    entries: int = 0
    postings: int = 0
    reservations: int = 0
    clearing: dict[str, int] = field(default_factory=dict)
    """Of each asset, what other gateways have still to settle with this one; zero once they have."""
    holdings: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of each asset, what traders have, what fees, clearing and the world have: in all zero."""
    findings: list[str] = field(default_factory=list)
    more: int = 0
    """Findings beyond those."""

    def find(self, finding: str) -> None:
        """Note what is wrong."""
        if len(self.findings) < _FINDINGS_MAX:
            self.findings.append(finding)
        else:
            self.more += 1

    @property
    def is_sound(self) -> bool:
        """Whether everything adds up."""
        return not self.findings


def audit(database: AccountsDatabase) -> BooksAudit:
    """Add up all entries of a gateway, and compare with what its accounts have."""
    report = BooksAudit(database.gateway(), database.place)
    with database.reading() as connection:
        report.accounts = _count(connection, ACCOUNTS)
        report.entries = _count(connection, ENTRIES)
        report.postings = _count(connection, POSTINGS)
        report.reservations = _count(connection, RESERVATIONS)
        _audit_entries(connection, report)
        _audit_balances(connection, report)
        for finding in (*_differences_of_reserved(connection), *differences_of_orders(connection)):
            report.find(finding)
        at = BALANCES.c.account == account_number(report.gateway, CLEARING)
        rows = connection.execute(select(BALANCES).where(at).order_by(BALANCES.c.asset))
        report.clearing = {row.asset: row.available for row in rows}
        report.holdings = _holdings(connection)
    return report


def _holdings(connection: Connection) -> dict[str, dict[str, int]]:
    has = BALANCES.c
    is_trader = has.account % TRADERS_MAX >= FIRST_TRADER
    whose = case((is_trader, -1), else_=has.account % TRADERS_MAX).label("whose")
    total = func.sum(has.available + has.reserved).label("total")
    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(select(has.asset, whose, total).group_by(has.asset, whose).order_by(has.asset)):
        name = "traders" if row.whose < 0 else house_name(row.whose)
        found.setdefault(row.asset, dict.fromkeys(("traders", "fees", "clearing", "world"), 0))[name] = int(row.total)
    return found


def net_between(databases: Sequence[AccountsDatabase]) -> Netting:
    """What gateways owe each other of all trades and forfeits that they have settled: read in one pass, by trade."""
    netting = Netting()
    with ExitStack() as stack:
        cleared = [_cleared(stack.enter_context(one.reading()), one.gateway()) for one in databases]
        for _, rows in groupby(merge(*cleared, key=_trade_of), key=_trade_of):
            sides: dict[int, Counter[str]] = {}
            for _, gateway, asset, amount in rows:
                sides.setdefault(gateway, Counter())[asset] += amount
            netting.add(sides)
    return netting


def _trade_of(row: tuple[str, int, str, int]) -> str:
    return row[0]


def _cleared(connection: Connection, gateway: int) -> Iterator[tuple[str, int, str, int]]:
    """Trade, gateway, asset and amount of all that passed a gateway's clearing, by trade in the order of its bytes."""
    order = 'e.key COLLATE "C"' if connection.dialect.name == "postgresql" else "e.key"
    query = (
        "SELECT e.key, p.asset, p.amount FROM entries e JOIN postings p ON p.entry = e.number"  # noqa: S608 - our own
        f" WHERE p.account = ? ORDER BY {order}, p.leg"
    )
    for row in execute(connection, query, (account_number(gateway, CLEARING),)):
        yield str(row.key).rpartition("/")[0], gateway, row.asset, int(row.amount)


def check_reserved(database: AccountsDatabase) -> None:
    """LedgerError unless what accounts have reserved is what orders have bound, and that is what they need."""
    with database.reading() as connection:
        for finding in (*_differences_of_reserved(connection), *differences_of_orders(connection)):
            rule = "nothing is traded until that is explained: isocast accounts audit"
            raise LedgerError(LedgerFault.UNSOUND, f"{finding}; {rule}")


def clearing_of_all(reports: list[BooksAudit]) -> dict[str, int]:
    """What is not settled between the gateways that were audited: of each asset, the sum, where it is not zero."""
    sums: Counter[str] = Counter()
    for report in reports:
        sums.update(report.clearing)
    return {asset: amount for asset, amount in sorted(sums.items()) if amount}


def _count(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def _audit_entries(connection: Connection, report: BooksAudit) -> None:
    """Each entry has legs that sum to zero, and no number is missing."""
    newest = connection.execute(select(func.max(ENTRIES.c.number))).scalar_one() or 0
    if newest != report.entries:
        report.find(f"entries are numbered up to {newest:,}, and there are {report.entries:,}: some were removed")
    total = func.sum(POSTINGS.c.amount)
    unbalanced = select(POSTINGS.c.entry, POSTINGS.c.asset, total.label("total")).group_by(
        POSTINGS.c.entry, POSTINGS.c.asset
    )
    for row in connection.execute(unbalanced.having(total != 0).order_by(POSTINGS.c.entry)):
        report.find(f"entry {row.entry} does not balance: {amount_text(row.asset, int(row.total))} too much")
    legless = select(ENTRIES.c.number).where(
        ~select(POSTINGS.c.entry).where(POSTINGS.c.entry == ENTRIES.c.number).exists()
    )
    for row in connection.execute(legless.order_by(ENTRIES.c.number)):
        report.find(f"entry {row.number} has no legs: they were removed")


def _audit_balances(connection: Connection, report: BooksAudit) -> None:
    """What accounts have is the sum of their legs, and within their limits."""
    legs = POSTINGS.c
    kept = [
        select(
            BALANCES.c.account,
            BALANCES.c.asset,
            literal(pot.value).label("pot"),
            (-BALANCES.c[pot.value]).label("amount"),
        )
        for pot in Pot
    ]
    both = union_all(select(legs.account, legs.asset, legs.pot, legs.amount), *kept).subquery()
    total = func.sum(both.c.amount)
    by = both.c.account, both.c.asset, both.c.pot
    for row in connection.execute(select(*by, total.label("total")).group_by(*by).having(total != 0).order_by(*by)):
        more = amount_text(row.asset, int(row.total))
        report.find(f"account {row.account}: its entries add up to {more} more {row.pot} than it has")
    has = BALANCES.c
    limit = func.coalesce(LIMITS.c.limit, 0)
    # What operators' corrections took back is owed, whatever the account has spent of it.
    taken = (
        select(legs.account, legs.asset, func.sum(legs.amount).label("amount"))
        .join(ENTRIES, ENTRIES.c.number == legs.entry)
        .where(ENTRIES.c.kind == EntryKind.CORRECTION.value, legs.amount < 0)
        .group_by(legs.account, legs.asset)
        .subquery()
    )
    limited = BALANCES.outerjoin(LIMITS, and_(LIMITS.c.account == has.account, LIMITS.c.asset == has.asset))
    limited = limited.outerjoin(taken, and_(taken.c.account == has.account, taken.c.asset == has.asset))
    least = func.coalesce(taken.c.amount, 0) - limit
    beyond = select(BALANCES).select_from(limited).where(or_(has.available < least, has.reserved < 0))
    for row in connection.execute(beyond.order_by(has.account, has.asset)):
        if not is_house(row.account):
            available, reserved = amount_text(row.asset, row.available), amount_text(row.asset, row.reserved)
            report.find(f"account {row.account} has {available} available, {reserved} reserved: beyond its limit")


def differences_of_orders(connection: Connection) -> Iterator[str]:
    """Where what an order has bound is not what it needs: computed again from the orders, and what is not settled."""
    need = {
        holder_of(number): order.life.need() + sum(due.amount for due in order.dues)
        for number, order in OrderMemory.read(connection, "").orders.items()
    }
    bound = {row.holder: row.amount for row in connection.execute(select(RESERVATIONS)) if is_order(row.holder)}
    for holder in sorted({*need, *bound}):
        if need.get(holder, 0) != bound.get(holder, 0):
            yield f"{holder} has {bound.get(holder, 0):,} bound and needs {need.get(holder, 0):,}"


def _differences_of_reserved(connection: Connection) -> Iterator[str]:
    """Where what is reserved is not what orders have bound."""
    bound = select(RESERVATIONS.c.account, RESERVATIONS.c.asset, RESERVATIONS.c.amount, literal(0).label("reserved"))
    kept = select(BALANCES.c.account, BALANCES.c.asset, literal(0).label("amount"), BALANCES.c.reserved)
    both = union_all(bound, kept).subquery()
    need, reserved = func.sum(both.c.amount), func.sum(both.c.reserved)
    by = both.c.account, both.c.asset
    sums = select(*by, need.label("need"), reserved.label("reserved")).group_by(*by)
    for row in connection.execute(sums.having(need != reserved).order_by(*by)):
        has, needs = amount_text(row.asset, int(row.reserved)), amount_text(row.asset, int(row.need))
        yield f"account {row.account} has {has} reserved, its orders need {needs}"
