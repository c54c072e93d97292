"""A trading floor: publishes a table of trades, as a program with pandas would have it."""

import pandas as pd

import isocast


def main() -> None:
    """Publish three trades of one symbol; what all rows have in common is said once."""
    trades = pd.DataFrame({"price": [72.5, 72.4, 72.6], "quantity": [100, 300, 200], "id": [1, 2, 3]})
    with isocast.connect(source="london-floor") as market:
        done = market.publish(trades, kind="trade", floor="XLON", symbol="VOD", key="the morning's trades")
        print(f"{done.events} events are safe, in {done.messages} message")


if __name__ == "__main__":
    main()
