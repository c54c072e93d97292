"""`isocast floor correct` and `countersign`: two operators put a confirmed trade right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

from isocast.cli.options import Config, Count, Flag
from isocast.cli.render import line, show_json
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND
from isocast.terms.instruments import scale_of, to_whole

if TYPE_CHECKING:
    from isocast.floor.corrections import Correction
    from isocast.runtime.operate.floor_correction import StandingTrade

__all__ = ["correct", "countersign"]

_HOUR_NS = 3_600 * SECOND
_Hours: TypeAlias = Annotated[float, Parameter(validator=Number(gt=0, lte=24 * 365))]
_Trade: TypeAlias = Annotated[int, Parameter(validator=Number(gte=1, lt=2**63))]


def correct(  # noqa: PLR0913 - a command
    trade: _Trade,
    journal: Path,
    /,
    *,
    operator_key: Path,
    out: Path,
    void: Flag = False,
    price: str | None = None,
    quantity: Count | None = None,
    reason: str = "",
    hours: _Hours = 24.0,
    floor: str | None = None,
    config: Config = None,
    json: Flag = False,
) -> int:
    """Propose the correction of a confirmed trade, and sign it as the first of two operators.

    Nothing changes before another operator countersigns it, which sends it: the paper travels, keys do not. Then every
    receiver takes it at the same token. Gateways reverse what they settled, fees included, and settle the trade as it
    is now; orders stay as they are. A void trade is void for good.

    Parameters
    ----------
    trade
        Its number, as isocast floor trades shows it.
    journal
        A site's journal, from the first sequence on: the trade is read from there. It may be in use.
    operator_key
        The file of your private key, identity-NAME.key. The market file names you among the floor's correctors.
    out
        Where the proposal is written; it is not secret.
    void
        Nothing is left of the trade.
    price
        The right price.
    quantity
        The right quantity, not above that of the trade.
    reason
        For the record: up to 120 ASCII characters.
    hours
        How long the proposal counts.
    floor
        The floor's code; the only one, if left out.
    json
        Print one JSON object instead of text.
    """
    from isocast.runtime.market.file import open_market
    from isocast.runtime.operate.floor_change import find_floor
    from isocast.runtime.operate.floor_correction import Proposal, correction_text, proposed, signed

    if void == (price is not None or quantity is not None):
        raise ConfigurationError("command line", "--void", "say either that the trade is void, or what is right of it")
    market = open_market(config)
    table = find_floor(market, floor)
    standing = _standing(journal, table.code, trade)
    units = None if price is None else _price_units(standing.trade.symbol, price)
    wanted = proposed(standing, units, quantity, round(hours * _HOUR_NS), reason)
    found, name = signed(market, table, wanted, operator_key)
    out.write_text(correction_text(Proposal(table.code, found)), encoding="ascii")
    _show(found, table.code, (name,), json=json, is_sent=False)
    if not json:
        others = ", ".join([one for one in table.correctors if one != name])
        line(f"Written to {out}. Next, {others}: isocast floor countersign {out} JOURNAL --operator-key FILE")
    return 0


def countersign(file: Path, journal: Path, /, *, operator_key: Path, config: Config = None, json: Flag = False) -> int:
    """Check a proposed correction, sign it as the second operator, and send it into the sequence.

    It is shown before it is sent, and compared with how the trade stands in a journal of your own. Sending it again
    changes nothing.

    Parameters
    ----------
    file
        The proposal, as isocast floor correct wrote it.
    journal
        A site's journal, better not the one that the proposal was made from. It may be in use.
    operator_key
        The file of your private key, identity-NAME.key.
    json
        Print one JSON object instead of text.
    """
    from isocast.runtime.market.file import open_market
    from isocast.runtime.operate.floor_change import find_floor
    from isocast.runtime.operate.floor_correction import countersigned, publish_correction, read_proposal

    market = open_market(config)
    proposal = read_proposal(file)
    table = find_floor(market, proposal.floor)
    standing = _standing(journal, table.code, proposal.correction.trade.number)
    found, names = countersigned(market, table, proposal.correction, standing, operator_key)
    shutdown.run(publish_correction(market, table, found))
    _show(found, table.code, names, json=json, is_sent=True)
    return 0


def _standing(journal: Path, code: str, number: int) -> StandingTrade:
    from isocast.runtime.disk.floor_journal import JournalFloor
    from isocast.runtime.disk.journal_segments import segment_files
    from isocast.runtime.operate.floor_correction import standing_trade

    if not journal.exists() or not segment_files(journal):
        raise ConfigurationError("command line", str(journal), "there is no journal")
    return standing_trade(JournalFloor(journal, code), number)


def _price_units(symbol: str, text: str) -> int:
    try:
        return to_whole(text, scale_of(symbol).price)
    except ValueError as reason:
        raise ConfigurationError("command line", "--price", str(reason)) from None


def _show(correction: Correction, floor: str, names: tuple[str, ...], *, json: bool, is_sent: bool) -> None:
    trade, scale = correction.trade, scale_of(correction.trade.symbol)
    if json:
        right = None if correction.is_void else f"{scale.to_price(correction.price):f}"
        show_json(
            {
                "floor": floor,
                "trade": trade.number,
                "symbol": trade.symbol,
                "version": correction.version,
                "price": f"{scale.to_price(trade.price):f}",
                "quantity": trade.quantity,
                "right_price": right,
                "right_quantity": correction.quantity,
                "reason": correction.reason,
                "signed_by": list(names),
                "sent": is_sent,
            }
        )
        return
    was = f"{trade.quantity:,} {trade.symbol} at {scale.to_price(trade.price):f}"
    now = "void" if correction.is_void else f"{correction.quantity:,} at {scale.to_price(correction.price):f}"
    line(f"Trade {trade.number:,} of {floor}, {was}: {now}. Signed by {' and '.join(names)}.")
    if is_sent:
        line("It is on its way into the sequence; isocast floor trades and isocast accounts statement will show it.")
