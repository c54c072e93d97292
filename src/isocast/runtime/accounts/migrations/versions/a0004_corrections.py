"""Corrections of confirmed trades."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add which version of a trade something due makes."""
    op.add_column("dues", sa.Column("version", sa.Integer, nullable=False, server_default="0"))
