"""The tables of a box office. It sells some packages a second at most: each change has a transaction of its own."""

from __future__ import annotations

from functools import partial
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    insert,
    inspect,
    select,
)

from isocast.runtime.disk.database import NAME_LENGTH, WRITER, Database, settings_table
from isocast.terms.errors import ConfigurationError, OfficeError, OfficeFault

__all__ = [
    "AUDIT",
    "INVOICES",
    "ORDERS",
    "PACKAGES",
    "PLANS",
    "SETTINGS",
    "STANDING",
    "SUBSCRIBERS",
    "TOKENS",
    "OfficeDatabase",
]

SCHEMA_VERSION: Final = "1"

_tables = MetaData()

SETTINGS = settings_table(_tables)
"""The schema's version, which market it is for, the length of a period; and the row that a writer locks."""

PLANS = Table(
    "plans",
    _tables,
    Column("name", String(NAME_LENGTH), primary_key=True),
    Column("title", Text, nullable=False),
    Column("services", Text, nullable=False),
    Column("price", BigInteger, nullable=False),
    Column("currency", String(3), nullable=False),
    Column("on_sale", Boolean, nullable=False),
)
"""What is sold: services, separated by blanks, and the price of one period in minor units."""

SUBSCRIBERS = Table(
    "subscribers",
    _tables,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("name", String(NAME_LENGTH), nullable=False, unique=True),
    Column("password", Text, nullable=False),
    Column("salt", LargeBinary, nullable=False),
    Column("mask", LargeBinary, nullable=False),
    Column("instrument", Text, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("revoked_ns", BigInteger),
    Column("reason", Text, nullable=False),
)
"""Passwords are hashed, masks sealed under the office's own key; `instrument` is the payment provider's word."""

ORDERS = Table(
    "orders",
    _tables,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("subscriber", BigInteger, ForeignKey("subscribers.id"), nullable=False, index=True),
    Column("plan", String(NAME_LENGTH), nullable=False),
    Column("services", Text, nullable=False),
    Column("first_period", BigInteger, nullable=False),
    Column("periods", BigInteger, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("currency", String(3), nullable=False),
    Column("key", String(200), nullable=False),
    Column("asked", Text, nullable=False),
    Column("instrument", Text, nullable=False),
    Column("state", String(16), nullable=False, index=True),
    Column("reference", Text, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("settled_ns", BigInteger),
    UniqueConstraint("subscriber", "key"),
)
"""`key` makes a purchase idempotent; `asked` is what was asked for under it."""

STANDING = Table(
    "standing",
    _tables,
    Column("subscriber", BigInteger, ForeignKey("subscribers.id"), primary_key=True),
    Column("plan", String(NAME_LENGTH), primary_key=True),
)
"""Plans that are renewed for a subscriber until he says otherwise."""

INVOICES = Table(
    "invoices",
    _tables,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("order", BigInteger, ForeignKey("orders.id"), nullable=False, unique=True),
    Column("issued_ns", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
)
"""Numbered without a gap."""

PACKAGES = Table(
    "packages",
    _tables,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("subscriber", BigInteger, ForeignKey("subscribers.id"), nullable=False, index=True),
    Column("contents", Text, nullable=False),
    Column("issued_ns", BigInteger, nullable=False),
    Column("raw", LargeBinary, nullable=False),
)
"""As they were given out: sealed. The same contents are the same package."""

TOKENS = Table(
    "tokens",
    _tables,
    Column("digest", String(64), primary_key=True),
    Column("subscriber", BigInteger, ForeignKey("subscribers.id"), index=True),
    Column("ends_ns", BigInteger, nullable=False),
)
"""Of sessions, by their hash; one without a subscriber is an operator's."""

AUDIT = Table(
    "audit",
    _tables,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ns", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("act", String(NAME_LENGTH), nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("link", String(64), nullable=False),
)
"""Everything that was changed, in order; each entry has the hash of itself and the one before."""

_GUARDS = {
    "sqlite": [
        f"CREATE TRIGGER audit_is_kept_{verb} BEFORE {verb} ON audit "
        "BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END"
        for verb in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        (
            "CREATE FUNCTION audit_is_kept() RETURNS trigger AS $$ BEGIN "
            "RAISE EXCEPTION 'the audit log is only added to'; END $$ LANGUAGE plpgsql"
        ),
        "CREATE TRIGGER audit_is_kept BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_is_kept()",
    ],
}
"""Against accidents and careless programs; the chain is against the others."""


class OfficeDatabase(Database):
    """The books of a box office."""

    def __init__(self, url: str) -> None:
        """`sqlite:///FILE` or `postgresql://…`; ConfigurationError, without its password, for any other."""
        super().__init__(url, "box office", SETTINGS, partial(OfficeError, OfficeFault.UNAVAILABLE))

    def create(self, settings: dict[str, str]) -> bool:
        """Make the tables and write the settings; False if they are there already, and are left as they are."""
        with self.making() as connection:
            if inspect(connection).has_table(SETTINGS.name):
                return False
            _tables.create_all(connection)
            for statement in _GUARDS[connection.dialect.name]:
                connection.exec_driver_sql(statement)
            rows = {"schema": SCHEMA_VERSION, WRITER: "", "audit": "", **settings}
            connection.execute(insert(SETTINGS), [{"name": name, "value": value} for name, value in rows.items()])
        return True

    def settings(self) -> dict[str, str]:
        """What `create` wrote; ConfigurationError where there is no box office, or one of another version."""
        with self.reading() as connection:
            if not inspect(connection).has_table(SETTINGS.name):
                rule = f"there is no box office in {self.place}: isocast box-office init makes one"
                raise ConfigurationError("box office", "database", rule)
            found = {row.name: row.value for row in connection.execute(select(SETTINGS))}
        if found.get("schema") != SCHEMA_VERSION:
            rule = f"{self.place} has version {found.get('schema')}, this program reads {SCHEMA_VERSION}"
            raise ConfigurationError("box office", "database", f"{rule}: use the program that made it")
        return found
