"""What an account is told at once is one row."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """A row has several reports from here on; rows of one stay as they are. Of which order one is, it says itself."""
    op.drop_column("reports", "order_number")
