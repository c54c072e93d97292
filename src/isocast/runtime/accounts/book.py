"""A gateway's books: accounts, what they have, and every entry that changed it.

The rules are those of `isocast.orders.ledger`; here they run inside a transaction, on what some entries touch, and the
result is written with the entries themselves. Many entries can share a transaction; each is posted or refused by
itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import time_ns
from typing import Any, Final

from sqlalchemy import Connection, Row, Table, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from isocast.orders.accounts import (
    AMOUNT_MAX,
    FIRST_TRADER,
    GATEWAYS_MAX,
    TRADERS_MAX,
    account_number,
    is_house,
)
from isocast.orders.ledger import Balance, Entry, Ledger, Leg, check_same
from isocast.runtime.accounts.posting import last_entry, ledger_of, posted_before, write_entries
from isocast.runtime.accounts.tables import (
    ACCOUNTS,
    BALANCES,
    ENTRIES,
    KEY_LENGTH,
    LIMITS,
    POSTINGS,
    AccountsDatabase,
    account_row,
)
from isocast.terms.errors import ConfigurationError, LedgerError, LedgerFault

__all__ = ["Account", "AccountBook", "Holding", "StatementLine"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")
_KEYS_AT_ONCE: Final = 500
"""Of one query: SQLite has 32,766 places for values in a statement, older ones 999."""


@dataclass(frozen=True, slots=True)
class Account:
    """Somebody's, or the gateway's own."""

    number: int
    name: str
    frozen: bool
    reason: str
    opened_ns: int


@dataclass(frozen=True, slots=True)
class Holding:
    """What an account has of one asset, and how far below zero it may go."""

    asset: str
    balance: Balance
    limit: int


@dataclass(frozen=True, slots=True)
class StatementLine:
    """One leg of an entry, and what the account had of the asset after it."""

    entry: int
    at_ns: int
    kind: str
    key: str
    memo: str
    asset: str
    pot: str
    amount: int
    after: int


class AccountBook:
    """The accounts of one gateway; threads may share it."""

    def __init__(self, database: AccountsDatabase, clock: Callable[[], int] = time_ns) -> None:
        """ConfigurationError where the database has no books, or of another version."""
        self.gateway = database.gateway()
        self._database = database
        self._clock = clock

    @staticmethod
    def create(database: AccountsDatabase, gateway: int | None = None) -> bool:
        """Make a gateway's books; False where they are there already, and are left as they are.

        Without a number they may be any gateway's, and new ones are the first's.
        """
        if gateway is not None and not 0 < gateway < GATEWAYS_MAX:
            raise ConfigurationError("accounts", "gateway", f"must be from 1 to {GATEWAYS_MAX - 1:,}, not {gateway}")
        made = database.create(1 if gateway is None else gateway, time_ns())
        found = database.gateway()
        if gateway not in {None, found}:
            rule = f"{database.place} has the books of gateway {found}, not {gateway}"
            raise ConfigurationError("accounts", "gateway", rule)
        return made

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    # Accounts -----------------------------------------------------------------------------------

    def open(self, name: str) -> Account:
        """Open an account under a name that nobody has yet."""
        if not _NAME.fullmatch(name) or name.isdigit():
            rule = "a name has up to 64 letters, digits, blanks, dots, dashes, and is no number"
            raise LedgerError(LedgerFault.UNKNOWN, f"{name!r} cannot be a name: {rule}")
        with self._database.writing() as connection:
            if connection.execute(select(ACCOUNTS).where(ACCOUNTS.c.name == name)).first() is not None:
                raise LedgerError(LedgerFault.KEY_USED, f"there is an account {name!r} already: isocast accounts show")
            last = connection.execute(select(func.max(ACCOUNTS.c.number))).scalar_one()
            number = max(last + 1, account_number(self.gateway, FIRST_TRADER))
            if number >= account_number(self.gateway, 0) + TRADERS_MAX:
                raise LedgerError(
                    LedgerFault.AMOUNT, f"gateway {self.gateway} has {TRADERS_MAX:,} accounts: no more fit"
                )
            connection.execute(insert(ACCOUNTS), [account_row(number, name, self._clock())])
        return self.account(number)

    def account(self, which: int | str) -> Account:
        """By its number or its name; LedgerError where there is none."""
        text = str(which)
        same = ACCOUNTS.c.number == int(text) if text.isdigit() and len(text) < 19 else ACCOUNTS.c.name == text  # noqa: PLR2004
        with self._database.reading() as connection:
            row = connection.execute(select(ACCOUNTS).where(same)).first()
        if row is None:
            raise LedgerError(LedgerFault.UNKNOWN, f"there is no account {text!r}: isocast accounts show lists them")
        return _account(row)

    def accounts(self) -> list[Account]:
        """All of them, the gateway's own first."""
        with self._database.reading() as connection:
            return [_account(row) for row in connection.execute(select(ACCOUNTS).order_by(ACCOUNTS.c.number))]

    def holdings(self, account: int) -> list[Holding]:
        """What an account has, and what it may owe."""
        with self._database.reading() as connection:
            balances = connection.execute(select(BALANCES).where(BALANCES.c.account == account)).all()
            limits = connection.execute(select(LIMITS).where(LIMITS.c.account == account)).all()
        has = {row.asset: Balance(row.available, row.reserved) for row in balances}
        may = {row.asset: row.limit for row in limits}
        return [Holding(asset, has.get(asset, Balance(0, 0)), may.get(asset, 0)) for asset in sorted({*has, *may})]

    def set_limit(self, account: int, asset: str, limit: int) -> None:
        """How far below zero an account may go: credit of a currency, short sales of a symbol. 0: not at all.

        What it owes already stays owed; it can spend nothing until it is within the limit again.
        """
        if not 0 <= limit < AMOUNT_MAX or is_house(account):
            raise LedgerError(LedgerFault.AMOUNT, "a limit is from 0 to below 2^62, and a trader's")
        with self._database.writing() as connection:
            self._known(connection, [account])
            _upsert(connection, LIMITS, [{"account": account, "asset": asset, "limit": limit}])

    def freeze(self, account: int, reason: str, *, frozen: bool = True) -> None:
        """Let an account spend nothing new, or let it again; what is ordered already goes its way."""
        if is_house(account):
            raise LedgerError(LedgerFault.UNKNOWN, "the gateway's own accounts cannot be frozen")
        with self._database.writing() as connection:
            self._known(connection, [account])
            values = {"frozen": frozen, "reason": reason}
            connection.execute(update(ACCOUNTS).where(ACCOUNTS.c.number == account).values(values))

    # Entries ------------------------------------------------------------------------------------

    def post(self, entry: Entry) -> bool:
        """Post one entry, or raise LedgerError; False for one that was posted before."""
        [answer] = self.post_each([entry])
        if isinstance(answer, LedgerError):
            raise answer
        return answer

    def post_each(self, entries: Sequence[Entry]) -> list[bool | LedgerError]:
        """Post entries in one transaction, each by itself: posted now, posted before, or refused and why.

        All that is posted is on the disk when this returns.
        """
        with self._database.writing() as connection:
            before = posted_before(connection, [entry.key for entry in entries])
            new = [entry for entry in entries if entry.key not in before]
            known = self._known_accounts(connection, {leg.account for entry in new for leg in entry.legs})
            ledger = ledger_of(connection, new)
            answers: list[bool | LedgerError] = []
            done: list[Entry] = []
            for entry in entries:
                try:
                    answers.append(_post(entry, ledger, before, known))
                except LedgerError as refusal:
                    answers.append(refusal)
                else:
                    done += [entry] * (answers[-1] is True)
            write_entries(connection, done, ledger, self._clock(), last_entry(connection) + 1)
        return answers

    def statement(self, account: int, since_ns: int = 0) -> Iterator[StatementLine]:
        """Every leg that changed an account since an instant, oldest first, with what it had afterwards."""
        joined = select(POSTINGS, ENTRIES).join(ENTRIES, POSTINGS.c.entry == ENTRIES.c.number)
        query = joined.where(POSTINGS.c.account == account).order_by(POSTINGS.c.entry, POSTINGS.c.leg)
        after: dict[tuple[str, str], int] = {}
        with self._database.reading() as connection:
            for row in connection.execution_options(stream_results=True).execute(query):
                place = row.asset, row.pot
                after[place] = after.get(place, 0) + row.amount
                if row.at_ns >= since_ns:
                    yield StatementLine(
                        row.entry, row.at_ns, row.kind, row.key, row.memo, row.asset, row.pot, row.amount, after[place]
                    )

    # What is there ------------------------------------------------------------------------------

    def _known_accounts(self, connection: Connection, accounts: set[int]) -> set[int]:
        found: set[int] = set()
        for some in _chunks(sorted(accounts)):
            rows = connection.execute(select(ACCOUNTS.c.number).where(ACCOUNTS.c.number.in_(some)))
            found.update(row.number for row in rows)
        return found

    def _known(self, connection: Connection, accounts: Sequence[int]) -> None:
        for missing in set(accounts) - self._known_accounts(connection, set(accounts)):
            raise LedgerError(LedgerFault.UNKNOWN, f"there is no account {missing}: isocast accounts show lists them")


def _account(row: Row[Any]) -> Account:
    return Account(row.number, row.name, row.frozen, row.reason, row.opened_ns)


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), _KEYS_AT_ONCE):
        yield items[start : start + _KEYS_AT_ONCE]


def _post(entry: Entry, ledger: Ledger, before: dict[str, tuple[str, list[Leg]]], known: set[int]) -> bool:
    if not 0 < len(entry.key) <= KEY_LENGTH or len(entry.holder) > KEY_LENGTH:
        raise LedgerError(LedgerFault.KEY_USED, f"a key has from 1 to {KEY_LENGTH} characters")
    if entry.key in before:
        check_same(entry, *before[entry.key])
        return False
    for leg in entry.legs:
        if leg.account not in known:
            raise LedgerError(LedgerFault.UNKNOWN, f"there is no account {leg.account} at this gateway")
    return ledger.post(entry)


def _upsert(connection: Connection, table: Table, rows: list[dict[str, object]]) -> None:
    """Write rows, over those that have the same key."""
    make: Any = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    keys = [column.name for column in table.primary_key.columns]
    statement = make(table)
    others = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=others), rows)
