"""A wall display: the consolidated tape, one line for each symbol."""

import isocast


def main() -> None:
    """Show how things stand, and the state of the first sequence beside it."""
    with isocast.connect() as market, market.tape() as tape:
        for row in tape.rows():
            print(f"{row.symbol:8} last {row.last} bid {row.bid} ask {row.ask} volume {row.volume:,}")
        print("to begin with:", market.snapshot(1).rows()[0]["price"])


if __name__ == "__main__":
    main()
