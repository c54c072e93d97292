"""Offers, takes, lots and bids; and what tokens did that may still be lost."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add what an order is about, forfeits, the past of orders, and more than one snapshot of a floor."""
    op.add_column("orders", sa.Column("target", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("dues", sa.Column("forfeit", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("dues", sa.Column("bid", sa.BigInteger, nullable=False, server_default="0"))
    op.create_table(
        "past",
        sa.Column("floor", sa.String(16), primary_key=True),
        sa.Column("token", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "floor_snapshots",
        sa.Column("floor", sa.String(16), primary_key=True),
        sa.Column("token", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(64), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    # Kept as stable: the version before did not know which of its tokens were.
    op.execute(
        "INSERT INTO floor_snapshots (floor, token, sequence, state, body)"
        " SELECT floor, token, sequence, state, body FROM snapshots"
    )
    op.execute(
        "UPDATE position SET stable_token = (SELECT s.token FROM snapshots s WHERE s.floor = position.floor)"
        " WHERE EXISTS (SELECT 1 FROM snapshots s WHERE s.floor = position.floor AND s.token > position.stable_token)"
    )
    op.drop_table("snapshots")
