"""Trading: orders, client ids, reports, the outbox, what is due, logins, controls, kill switches, a lease."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_ACCOUNT = ("accounts.number",)


def upgrade() -> None:
    """Add what trading needs."""
    _trading()
    _following()
    _people()


def _trading() -> None:
    """What traders ask, and what becomes of it."""
    op.create_table(
        "orders",
        sa.Column("account", sa.BigInteger, sa.ForeignKey(*_ACCOUNT), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("client_id", sa.String(64), nullable=False),
        sa.Column("symbol", sa.String(12), nullable=False),
        sa.Column("side", sa.String(4), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("lifetime", sa.String(16), nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
        sa.Column("price", sa.BigInteger),
        sa.Column("trigger_price", sa.BigInteger),
        sa.Column("bound_price", sa.BigInteger, nullable=False),
        sa.Column("currency", sa.String(32), nullable=False),
        sa.Column("maker_bp", sa.Integer, nullable=False),
        sa.Column("taker_bp", sa.Integer, nullable=False),
        sa.Column("owner", sa.BigInteger, nullable=False),
        sa.Column("session", sa.String(32), nullable=False),
        sa.Column("entered_ns", sa.BigInteger, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("filled", sa.BigInteger, nullable=False),
        sa.Column("filled_value", sa.BigInteger, nullable=False),
        sa.Column("is_open", sa.Boolean, nullable=False),
        sa.Index(
            "orders_open", "account", "number", postgresql_where=sa.text("is_open"), sqlite_where=sa.text("is_open")
        ),
    )
    op.create_table(
        "requests",
        sa.Column("account", sa.BigInteger, sa.ForeignKey(*_ACCOUNT), primary_key=True),
        sa.Column("client_id", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("digest", sa.String(32), nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("answer", sa.BigInteger, nullable=False),
        sa.Column("is_pending", sa.Boolean, nullable=False),
        sa.Column("quantity", sa.BigInteger),
        sa.Column("bound_price", sa.BigInteger),
        sa.Column("price", sa.BigInteger),
        sa.Column("trigger_price", sa.BigInteger),
        sa.Index(
            "requests_pending",
            "account",
            "answer",
            postgresql_where=sa.text("is_pending"),
            sqlite_where=sa.text("is_pending"),
        ),
    )
    op.create_table(
        "reports",
        sa.Column("account", sa.BigInteger, sa.ForeignKey(*_ACCOUNT), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("order_number", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "outbox",
        sa.Column("batch", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key", sa.String(64), nullable=False, unique=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("published", sa.Boolean, nullable=False),
        sa.Index(
            "outbox_waiting", "batch", postgresql_where=sa.text("NOT published"), sqlite_where=sa.text("NOT published")
        ),
    )
    op.create_table(
        "dues",
        sa.Column("account", sa.BigInteger, sa.ForeignKey(*_ACCOUNT), primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True),
        sa.Column("place", sa.BigInteger, primary_key=True),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("trade", sa.BigInteger, nullable=False),
        sa.Column("quantity", sa.BigInteger, nullable=False),
        sa.Column("price", sa.BigInteger, nullable=False),
        sa.Column("fee", sa.BigInteger, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
    )


def _following() -> None:
    """How far the sequence was applied."""
    op.create_table(
        "position",
        sa.Column("floor", sa.String(16), primary_key=True),
        sa.Column("stripe", sa.Integer, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("confirmed", sa.BigInteger, nullable=False),
        sa.Column("stable_token", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "snapshots",
        sa.Column("floor", sa.String(16), primary_key=True),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(64), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.String(16), primary_key=True),
        sa.Column("generation", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("taken_ns", sa.BigInteger, nullable=False),
    )


def _people() -> None:
    """Who may do what."""
    op.create_table(
        "controls",
        sa.Column("account", sa.BigInteger, sa.ForeignKey(*_ACCOUNT), primary_key=True),
        sa.Column("quantity", sa.BigInteger, nullable=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.Column("collar_bp", sa.Integer, nullable=False),
        sa.Column("rate", sa.Integer, nullable=False),
        sa.Column("open_orders", sa.Integer, nullable=False),
    )
    op.create_table(
        "kills",
        sa.Column("scope", sa.String(16), primary_key=True),
        sa.Column("account", sa.BigInteger, primary_key=True),
        sa.Column("owner", sa.BigInteger, primary_key=True),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at_ns", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "logins",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("account", sa.BigInteger, sa.ForeignKey(*_ACCOUNT), nullable=False),
        sa.Column("password", sa.Text, nullable=False),
        sa.Column("changed_ns", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("account", sa.BigInteger, sa.ForeignKey(*_ACCOUNT), nullable=False, index=True),
        sa.Column("label", sa.String(64), nullable=False),
        sa.Column("scopes", sa.String(64), nullable=False),
        sa.Column("made_ns", sa.BigInteger, nullable=False),
        sa.Column("expires_ns", sa.BigInteger, nullable=False),
    )
