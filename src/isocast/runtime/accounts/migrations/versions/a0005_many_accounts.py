"""What a gateway reads of an account that it has not seen is one page, however many accounts there are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Balances in one tree, frozen accounts in an index of their own, and no index that nobody asks."""
    op.drop_index("ix_reservations_account", "reservations")
    frozen = sa.text("frozen")
    op.create_index(
        "accounts_frozen", "accounts", ["number"], unique=True, postgresql_where=frozen, sqlite_where=frozen
    )
    if op.get_bind().dialect.name == "sqlite":
        _balances_in_one_tree()


def _balances_in_one_tree() -> None:
    """SQLite has no other way to change how a table is kept."""
    op.rename_table("balances", "balances_before")
    op.create_table(
        "balances",
        sa.Column("account", sa.BigInteger, sa.ForeignKey("accounts.number"), primary_key=True),
        sa.Column("asset", sa.String(32), primary_key=True),
        sa.Column("available", sa.BigInteger, nullable=False),
        sa.Column("reserved", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.execute(
        "INSERT INTO balances (account, asset, available, reserved)"
        " SELECT account, asset, available, reserved FROM balances_before"
    )
    op.drop_table("balances_before")
