"""The tables of a gateway's books, and how an older database becomes one of today.

The tables below are what the newest migration leaves; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
    update,
)

from isocast.orders.accounts import CLEARING, FEES, WORLD, account_number, house_name
from isocast.orders.desk import CLIENT_ID_MAX
from isocast.runtime.disk.database import NAME_LENGTH, WRITER, Database, settings_table
from isocast.terms.errors import ConfigurationError, LedgerError, LedgerFault

__all__ = [
    "ACCOUNTS",
    "BALANCES",
    "CONTROLS",
    "DUES",
    "ENTRIES",
    "GATEWAY",
    "KEY_LENGTH",
    "KILLS",
    "LEASE",
    "LIMITS",
    "LOGINS",
    "ORDERS",
    "OUTBOX",
    "PAST",
    "POSITION",
    "POSTINGS",
    "REPORTS",
    "REQUESTS",
    "RESERVATIONS",
    "SETTINGS",
    "SNAPSHOTS",
    "TABLES",
    "TOKENS",
    "AccountsDatabase",
    "account_row",
]

GATEWAY: Final = "gateway"
"""The setting: whose books these are."""
KEY_LENGTH: Final = 200
_MARK_BYTES: Final = 16
_ASSET: Final = 32
_MIGRATIONS: Final = Path(__file__).parent / "migrations"

TABLES = MetaData()
SETTINGS = settings_table(TABLES)

ACCOUNTS = Table(
    "accounts",
    TABLES,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("name", String(NAME_LENGTH), nullable=False, unique=True),
    Column("frozen", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("opened_ns", BigInteger, nullable=False),
    Index("accounts_frozen", "number", unique=True, postgresql_where=text("frozen"), sqlite_where=text("frozen")),
)
"""Traders, brokers, and the gateway's own: world, clearing, fees. Few are frozen: whether one is, their index tells."""

LIMITS = Table(
    "limits",
    TABLES,
    Column("account", BigInteger, ForeignKey("accounts.number"), primary_key=True),
    Column("asset", String(_ASSET), primary_key=True),
    Column("limit", BigInteger, nullable=False),
)
"""How far below zero an account may go; without a row: not at all."""

BALANCES = Table(
    "balances",
    TABLES,
    Column("account", BigInteger, ForeignKey("accounts.number"), primary_key=True),
    Column("asset", String(_ASSET), primary_key=True),
    Column("available", BigInteger, nullable=False),
    Column("reserved", BigInteger, nullable=False),
    sqlite_with_rowid=False,  # One tree and not two: of a million accounts mostly one page is read, and one written.
)
"""The sums of all postings, kept so that nobody has to add them up; the audit does."""

ENTRIES = Table(
    "entries",
    TABLES,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("key", String(KEY_LENGTH), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    Column("at_ns", BigInteger, nullable=False),
    Column("memo", Text, nullable=False),
)
"""Everything that was posted, in order."""

POSTINGS = Table(
    "postings",
    TABLES,
    Column("entry", BigInteger, ForeignKey("entries.number"), primary_key=True),
    Column("leg", Integer, primary_key=True),
    Column("account", BigInteger, ForeignKey("accounts.number"), nullable=False),
    Column("asset", String(_ASSET), nullable=False),
    Column("pot", String(16), nullable=False),
    Column("amount", BigInteger, nullable=False),
    Index("postings_of_account", "account", "entry"),
)
"""The legs of entries."""

RESERVATIONS = Table(
    "reservations",
    TABLES,
    Column("holder", String(KEY_LENGTH), primary_key=True),
    Column("account", BigInteger, ForeignKey("accounts.number"), nullable=False),
    Column("asset", String(_ASSET), nullable=False),
    Column("amount", BigInteger, nullable=False),
)
"""What each live order, and each trade that is not confirmed, has bound: all that is reserved, one by one."""


# Trading ------------------------------------------------------------------------------------------------------------

ORDERS = Table(
    "orders",
    TABLES,
    Column("account", BigInteger, ForeignKey("accounts.number"), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("client_id", String(CLIENT_ID_MAX), nullable=False),
    Column("symbol", String(12), nullable=False),
    Column("side", String(4), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("lifetime", String(16), nullable=False),
    Column("total", BigInteger, nullable=False),
    Column("price", BigInteger),
    Column("trigger_price", BigInteger),
    Column("bound_price", BigInteger, nullable=False),
    Column("currency", String(_ASSET), nullable=False),
    Column("maker_bp", Integer, nullable=False),
    Column("taker_bp", Integer, nullable=False),
    Column("owner", BigInteger, nullable=False),
    Column("session", String(32), nullable=False),
    Column("entered_ns", BigInteger, nullable=False),
    Column("status", String(16), nullable=False),
    Column("filled", BigInteger, nullable=False),
    Column("filled_value", BigInteger, nullable=False),
    Column("is_open", Boolean, nullable=False),
    Column("target", BigInteger, nullable=False, server_default="0"),
    Index("orders_open", "account", "number", postgresql_where=text("is_open"), sqlite_where=text("is_open")),
)
"""Every order that was reserved, as it is now. Open: it lives, or something of it is not settled. Its id in the
sequence is account · 2³² + number. A target: the offer that it takes, or the lot that it bids for."""

REQUESTS = Table(
    "requests",
    TABLES,
    Column("account", BigInteger, ForeignKey("accounts.number"), primary_key=True),
    Column("client_id", String(CLIENT_ID_MAX), primary_key=True),
    Column("kind", String(8), nullable=False),
    Column("digest", String(32), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("answer", BigInteger, nullable=False),
    Column("is_pending", Boolean, nullable=False),
    Column("quantity", BigInteger),
    Column("bound_price", BigInteger),
    Column("price", BigInteger),
    Column("trigger_price", BigInteger),
    Index(
        "requests_pending", "account", "answer", postgresql_where=text("is_pending"), sqlite_where=text("is_pending")
    ),
)
"""Client ids, for ever: what was asked (a digest), of which order, and the number of the report that was the answer.
Pending: a cancel or a replace that the sequence has not answered."""

REPORTS = Table(
    "reports",
    TABLES,
    Column("account", BigInteger, ForeignKey("accounts.number"), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("batch", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
)
"""What each account was told, numbered without gaps. What it is told at once is one row, under the number of the last.
One with a batch is told once the batch is published."""

OUTBOX = Table(
    "outbox",
    TABLES,
    Column("batch", BigInteger, primary_key=True, autoincrement=False),
    Column("key", String(64), nullable=False, unique=True),
    Column("body", LargeBinary, nullable=False),
    Column("published", Boolean, nullable=False),
    Index("outbox_waiting", "batch", postgresql_where=text("NOT published"), sqlite_where=text("NOT published")),
)
"""What goes into the sequence, each batch under its key."""

DUES = Table(
    "dues",
    TABLES,
    Column("account", BigInteger, ForeignKey("accounts.number"), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("place", BigInteger, primary_key=True),
    Column("token", BigInteger, nullable=False),
    Column("trade", BigInteger, nullable=False),
    Column("quantity", BigInteger, nullable=False),
    Column("price", BigInteger, nullable=False),
    Column("fee", BigInteger, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("forfeit", BigInteger, nullable=False, server_default="0"),
    Column("bid", BigInteger, nullable=False, server_default="0"),
    Column("version", Integer, nullable=False, server_default="0"),
)
"""What the sequence has decided and is not stable: trades to be settled, or corrected where there is a version; without
a trade, what is to be freed."""

POSITION = Table(
    "position",
    TABLES,
    Column("floor", String(16), primary_key=True),
    Column("stripe", Integer, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("confirmed", BigInteger, nullable=False),
    Column("stable_token", BigInteger, nullable=False),
)
"""How far the sequence was applied: all of a token, or nothing of it."""

PAST = Table(
    "past",
    TABLES,
    Column("floor", String(16), primary_key=True),
    Column("token", BigInteger, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),
    Column("body", Text, nullable=False),
)
"""Tokens that were applied and are not stable: what they carried (a digest), and how the orders were before them. A
reformation may cut such a token off; then its orders are as they were."""

SNAPSHOTS = Table(
    "floor_snapshots",
    TABLES,
    Column("floor", String(16), primary_key=True),
    Column("token", BigInteger, primary_key=True, autoincrement=False),
    Column("sequence", BigInteger, nullable=False),
    Column("state", String(64), nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""The floor after a token, with the hash of its state: a restart goes on from the newest that is stable."""

CONTROLS = Table(
    "controls",
    TABLES,
    Column("account", BigInteger, ForeignKey("accounts.number"), primary_key=True),
    Column("quantity", BigInteger, nullable=False),
    Column("value", BigInteger, nullable=False),
    Column("collar_bp", Integer, nullable=False),
    Column("rate", Integer, nullable=False),
    Column("open_orders", Integer, nullable=False),
)
"""Limits of accounts that have some of their own."""

KILLS = Table(
    "kills",
    TABLES,
    Column("scope", String(16), primary_key=True),
    Column("account", BigInteger, primary_key=True),
    Column("owner", BigInteger, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("at_ns", BigInteger, nullable=False),
)
"""Kill switches that are on."""

LOGINS = Table(
    "logins",
    TABLES,
    Column("name", String(NAME_LENGTH), primary_key=True),
    Column("account", BigInteger, ForeignKey("accounts.number"), nullable=False),
    Column("password", Text, nullable=False),
    Column("changed_ns", BigInteger, nullable=False),
)
"""Who may come in by a password, which is kept as argon2id."""

TOKENS = Table(
    "tokens",
    TABLES,
    Column("digest", String(64), primary_key=True),
    Column("account", BigInteger, ForeignKey("accounts.number"), nullable=False, index=True),
    Column("label", String(NAME_LENGTH), nullable=False),
    Column("scopes", String(64), nullable=False),
    Column("made_ns", BigInteger, nullable=False),
    Column("expires_ns", BigInteger, nullable=False),
)
"""API tokens, by their digest."""

LEASE = Table(
    "lease",
    TABLES,
    Column("name", String(16), primary_key=True),
    Column("generation", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("taken_ns", BigInteger, nullable=False),
)
"""Which process trades: the one of the newest generation, and no other."""


def account_row(number: int, name: str, now: int) -> dict[str, object]:
    """A new account, as `ACCOUNTS` has it."""
    return {"number": number, "name": name, "frozen": False, "reason": "", "opened_ns": now}


class AccountsDatabase(Database):
    """Where a gateway's books are."""

    def __init__(self, url: str) -> None:
        """`sqlite:///FILE` or `postgresql://…`; ConfigurationError, without its password, for any other."""
        super().__init__(url, "accounts", SETTINGS, partial(LedgerError, LedgerFault.UNAVAILABLE))

    @contextmanager
    def writing(self, *, marked: bool = True) -> Iterator[Connection]:
        """Everything in this block is changed together or not at all, and nobody else writes meanwhile.

        `marked`: a gateway that runs on these books learns of it, and reads again what it remembers of accounts.
        """
        with super().writing() as connection:
            if marked:
                mark = update(SETTINGS).where(SETTINGS.c.name == WRITER).values(value=token_hex(_MARK_BYTES))
                connection.execute(mark)
            yield connection

    def create(self, gateway: int, now: int) -> bool:
        """Make a gateway's books with its own accounts; False where there are some already, which are left alone."""
        with self.making() as connection:
            if MigrationContext.configure(connection).get_current_revision() is not None:
                return False
            if inspect(connection).has_table(SETTINGS.name):
                rule = f"{self.place} is a box office's: give the accounts a database of their own"
                raise ConfigurationError("accounts", "database", rule)
            _upgrade(connection)
            rows = {WRITER: "", GATEWAY: str(gateway)}
            connection.execute(insert(SETTINGS), [{"name": name, "value": value} for name, value in rows.items()])
            for which in (WORLD, CLEARING, FEES):
                number = account_number(gateway, which)
                connection.execute(insert(ACCOUNTS), [account_row(number, house_name(number), now)])
        return True

    def upgrade(self) -> bool:
        """Bring the books of an older version up to date, all or nothing; False where there was nothing to do."""
        with self.writing(marked=False) as connection:
            found = MigrationContext.configure(connection).get_current_revision()
            if found is None:
                raise self._missing()
            scripts = _scripts()
            if found not in {script.revision for script in scripts.walk_revisions()}:
                rule = f"{self.place} has version {found}, made by a newer program: use that one"
                raise ConfigurationError("accounts", "database", rule)
            if found == scripts.get_current_head():
                return False
            _upgrade(connection)
        return True

    def gateway(self) -> int:
        """Whose books these are; ConfigurationError where there are none, or of another version."""
        if self.file is not None and not self.file.exists():
            raise self._missing()  # Else SQLite would make an empty one.
        with self.reading() as connection:
            found = MigrationContext.configure(connection).get_current_revision()
            if found is None:
                raise self._missing()
            head = _scripts().get_current_head()
            if found != head:
                rule = f"{self.place} has version {found}, this program {head}: isocast accounts upgrade"
                raise ConfigurationError("accounts", "database", rule)
            value = connection.execute(select(SETTINGS.c.value).where(SETTINGS.c.name == GATEWAY)).scalar_one()
        return int(value)

    def _missing(self) -> ConfigurationError:
        rule = f"there are no accounts in {self.place}: isocast accounts open makes the first"
        return ConfigurationError("accounts", "database", rule)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    return config


def _upgrade(connection: Connection) -> None:
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())
