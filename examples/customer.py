"""A customer: hears every trade of a symbol from the beginning, until the market is quiet for three seconds."""

from decimal import Decimal
from typing import Any

import isocast


def main() -> None:
    """Add up what was traded."""
    turnover = Decimal(0)
    with isocast.connect() as market:
        for batch in market.listen("VOD", start="beginning", timeout_s=3):
            turnover += sum(map(value, batch.rows()), Decimal(0))
    print(f"VOD traded for {turnover}")


def value(row: dict[str, Any]) -> Decimal:
    """What changed hands by an event."""
    return Decimal(row["price"] * row["quantity"]) if row["kind"] == "trade" else Decimal(0)


if __name__ == "__main__":
    main()
