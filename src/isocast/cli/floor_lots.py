"""`isocast floor open-lot`, `lots`, `bid` and `reveal`: auctions for people, at a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from isocast.cli.options import Flag
from isocast.cli.order import GatewayChoice, show_one
from isocast.cli.render import line, note, show_json, show_table
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from isocast.runtime.client.trader import Trader
    from isocast.runtime.client.trading_answers import OpenLot, OrderReport

__all__ = ["bid", "lots", "open_lot", "reveal"]

_PLACE = GatewayChoice()
KEEP = Path("bids")
"""Where sealed bids are kept until they are revealed."""
Quantity = Annotated[int, Parameter(validator=Number(gte=1), help="How many, in whole lots of the symbol.")]


def open_lot(  # noqa: PLR0913 - two kinds of sale
    symbol: str,
    quantity: Quantity,
    reserve: str,
    /,
    *,
    closes: str | None = None,
    reveal_until: str | None = None,
    forfeit: str = "0",
    start: str | None = None,
    step: str | None = None,
    id: str | None = None,  # noqa: A002 - its name on the command line
    place: GatewayChoice = _PLACE,
    json: Flag = False,
) -> int:
    """Open a lot for sale: by sealed bids at the second price, or by a Dutch clock.

    Parameters
    ----------
    symbol
        What to sell.
    reserve
        The lowest price of a unit.
    closes
        Second price: when bids end, such as 2030-03-31T16:00:00Z.
    reveal_until
        Second price: until when bids are revealed; then it is decided.
    forfeit
        Second price: money that a bid loses to you if it is not revealed.
    start
        Dutch: the first price.
    step
        Dutch: by how much it falls with every token.
    id
        Your own id of it; repeated with the same one, it is opened once. Left out, one is made.
    json
        Print one JSON object instead of a line.
    """
    is_sealed, is_dutch = (closes is not None and reveal_until is not None), (start is not None and step is not None)
    if is_sealed is is_dutch or (closes is None) is not (reveal_until is None) or (start is None) is not (step is None):
        rule = "give --closes and --reveal-until for sealed bids, or --start and --step for a Dutch clock"
        raise ConfigurationError("command line", "open-lot", rule)

    async def work(trader: Trader) -> OrderReport:
        if start is not None and step is not None:
            order = await trader.open_clock(symbol, quantity, reserve, start=start, step=step, client_id=id)
        else:
            order = await trader.open_lot(
                symbol,
                quantity,
                reserve,
                closes_at=closes or "",
                reveal_until=reveal_until or "",
                forfeit=forfeit,
                client_id=id,
            )
        return order.report

    made = place.run(work)
    if not json:
        note(f"isocast: lot {made.order}: bidders name it so")
    show_one(made, as_json=json)
    return 0


def lots(*, place: GatewayChoice = _PLACE, json: Flag = False) -> int:
    """Show the lots that are for sale, of all gateways.

    Parameters
    ----------
    json
        Print one JSON list instead of a table.
    """
    found = place.run(lambda trader: trader.lots())
    if json:
        show_json([_fields(one) for one in found])
        return 0
    headers = ("lot", "symbol", "auction", "left", "reserve", "price", "bids", "closes", "reveal until")
    rows = [
        (
            str(one.lot),
            one.symbol,
            one.auction,
            f"{one.left:,}",
            f"{one.reserve}",
            "" if one.price is None else f"{one.price}",
            "" if one.closes_at is None else f"{one.bids:,}",
            _instant(one.closes_at),
            _instant(one.reveal_until),
        )
        for one in found
    ]
    show_table("Lots", headers, rows)
    return 0


def _instant(at: int | None) -> str:
    from isocast.terms.instants import instant_text

    return "" if at is None else instant_text(at)[:19] + "Z"


def _fields(one: OpenLot) -> dict[str, object]:
    from dataclasses import asdict

    said = asdict(one)
    prices = {name: None if said[name] is None else str(said[name]) for name in ("reserve", "forfeit", "price")}
    return {**said, **prices, "lot": str(one.lot)}


def bid(  # noqa: PLR0913 - two kinds of bids
    lot: int,
    price: str,
    /,
    *,
    ceiling: str | None = None,
    quantity: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    keep: Path = KEEP,
    wait: Flag = False,
    id: str | None = None,  # noqa: A002 - its name on the command line
    place: GatewayChoice = _PLACE,
    json: Flag = False,
) -> int:
    """Bid for a lot: sealed, and revealed when it closes; or call at a Dutch clock, with --quantity.

    Parameters
    ----------
    lot
        Its number, as `lots` shows it.
    price
        Of a unit: what you bid, and nobody reads before the close; at a Dutch clock the most that you pay.
    ceiling
        Sealed: the price at which your money is reserved, which everybody sees; the price itself, if left out.
    quantity
        At a Dutch clock: how many.
    keep
        Sealed: a folder for what is needed to reveal the bid, which only you can read.
    wait
        Sealed: stay until the lot closes, and reveal the bid. Otherwise `isocast floor reveal` does.
    id
        Your own id of it; repeated with the same one, it is sent once. Left out, one is made.
    json
        Print one JSON object instead of a line.
    """
    if quantity is not None:
        if ceiling is not None or wait:
            raise ConfigurationError("command line", "--quantity", "is for a Dutch clock: no --ceiling and no --wait")
        call = quantity

        async def called(trader: Trader) -> OrderReport:
            return (await trader.bid(lot, call, price, client_id=id)).report

        show_one(place.run(called), as_json=json)
        return 0

    async def sealed(trader: Trader) -> OrderReport | None:
        made = await trader.bid_sealed(lot, price, ceiling=ceiling or price, keep=keep, client_id=id)
        kept = made.file_in(keep)
        if not wait:
            _show_kept(made.client_id, kept, as_json=json)
            return None
        note(f"isocast: {kept} holds the bid until it is revealed")
        revealed = await trader.reveal(made)
        kept.unlink(missing_ok=True)
        return revealed

    found = place.run(sealed)
    if found is not None:
        show_one(found, as_json=json)
    return 0


def _show_kept(client_id: str, file: Path, *, as_json: bool) -> None:
    if as_json:
        show_json({"client_id": client_id, "file": str(file)})
    else:
        line(f"{client_id}: sealed; isocast floor reveal --keep {file.parent} reveals it when the lot is closed.")


def reveal(*, keep: Path = KEEP, place: GatewayChoice = _PLACE, json: Flag = False) -> int:
    """Reveal the sealed bids that are kept in a folder, each when its lot closes.

    It may be ended and started again: a file is deleted when its bid is revealed, or can never be.

    Parameters
    ----------
    keep
        The folder that `bid` has used.
    json
        Print one JSON list instead of lines.
    """
    from isocast.cli.order import report_fields

    found = place.run(lambda trader: trader.reveal_kept(keep))
    if json:
        show_json([report_fields(one) for one in found])
    else:
        for one in found:
            show_one(one, as_json=False)
        if not found:
            line("Nothing was revealed.")
    return 0
