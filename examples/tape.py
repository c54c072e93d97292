"""A wall display: the consolidated tape, one line for each symbol."""

import isocast


def main() -> None:
    """Show how things stand, and how they stood to begin with."""
    with isocast.connect() as market:
        with market.tape() as tape:
            for row in tape.rows():
                print(f"{row.symbol:8} last {row.last} bid {row.bid} ask {row.ask} volume {row.volume:,}")
        print("the first price was", market.snapshot(1).rows()[0]["price"])


if __name__ == "__main__":
    main()
