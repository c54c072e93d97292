"""Accounts, balances, entries and their legs, reservations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ACCOUNT = ("accounts.number",)


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "settings",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "accounts",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
        sa.Column("frozen", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("opened_ns", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "limits",
        sa.Column("account", sa.BigInteger, sa.ForeignKey(*_ACCOUNT), primary_key=True),
        sa.Column("asset", sa.String(32), primary_key=True),
        sa.Column("limit", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "balances",
        sa.Column("account", sa.BigInteger, sa.ForeignKey(*_ACCOUNT), primary_key=True),
        sa.Column("asset", sa.String(32), primary_key=True),
        sa.Column("available", sa.BigInteger, nullable=False),
        sa.Column("reserved", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "entries",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key", sa.String(200), nullable=False, unique=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("at_ns", sa.BigInteger, nullable=False),
        sa.Column("memo", sa.Text, nullable=False),
    )
    op.create_table(
        "postings",
        sa.Column("entry", sa.BigInteger, sa.ForeignKey("entries.number"), primary_key=True),
        sa.Column("leg", sa.Integer, primary_key=True),
        sa.Column("account", sa.BigInteger, sa.ForeignKey(*_ACCOUNT), nullable=False),
        sa.Column("asset", sa.String(32), nullable=False),
        sa.Column("pot", sa.String(16), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Index("postings_of_account", "account", "entry"),
    )
    op.create_table(
        "reservations",
        sa.Column("holder", sa.String(200), primary_key=True),
        sa.Column("account", sa.BigInteger, sa.ForeignKey(*_ACCOUNT), nullable=False, index=True),
        sa.Column("asset", sa.String(32), nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
    )
