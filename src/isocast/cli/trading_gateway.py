"""`isocast trading-gateway`: orders of many traders into one market, and their money safe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.accounts import DATABASE
from isocast.cli.certs import CertificateDays, certify
from isocast.cli.databases import BooksUrl, address_of, needing_extra
from isocast.cli.options import Config, Flag, Seconds
from isocast.cli.render import note
from isocast.runtime.operate import shutdown

if TYPE_CHECKING:
    from isocast.runtime.accounts.serving import WayIn
    from isocast.runtime.accounts.ways_in import Place
    from isocast.runtime.market.model import Market

__all__ = ["app"]

app = App(
    name="trading-gateway",
    help="Take orders of traders: reserve, publish, follow the floor, settle.",
    help_epilogue="Start with:\n\n    isocast trading-gateway run --config market.toml --source london-floor\n",
)

_BasisPoints = Annotated[int, Parameter(validator=Number(gte=0, lt=10_000))]


@app.command(
    help_epilogue="""Examples:

    isocast trading-gateway run --config market.toml --source london-floor

    isocast trading-gateway run --source london-floor --https 127.0.0.1:8444 --fix 127.0.0.1:7790

    isocast trading-gateway run --source london-floor --database postgresql://gateway@db.example/accounts

One process trades at a time: a second one on the same database takes over, and the first ends. Exit code: 0 it was
stopped, 1 it cannot go on, 2 bad input.
"""
)
def run(  # noqa: PLR0913 - which market, which books, and what trading costs
    *,
    config: Config = None,
    source: str,
    database: BooksUrl = None,
    customer: str | None = None,
    https: str | None = None,
    fix: str | None = None,
    certificate: Path | None = None,
    private_key: Path | None = None,
    floor: str | None = None,
    collar: _BasisPoints = 500,
    cancel_on_disconnect: Flag = False,
    accept_unknown: Flag = False,
    grace: Annotated[float, Parameter(validator=Number(gte=0))] = 0.0,
    seconds: Seconds | None = None,
) -> int:
    """Run a gateway's desk: it publishes at a source's door, and hears the sequence as a complete customer.

    The accounts are those of `isocast accounts`, and must exist.

    Parameters
    ----------
    source
        At whose door orders are published.
    customer
        As whom it hears the sequence; left out, wherever there is room.
    https
        ADDRESS:PORT where traders come in by HTTPS and WebSocket; port 0 takes a free one.
    fix
        ADDRESS:PORT where they come in by FIX 4.4.
    certificate
        Of TLS, in PEM; left out, the one that `certificate` made, if it is here. Needed away from this machine.
    private_key
        The file of its private key.
    floor
        The code of the floor; the only one of the market file, if left out. Currency and fees are in its table.
    collar
        Basis points that a market order may go from the reference, where its symbol has no collar.
    cancel_on_disconnect
        Cancel the orders of a FIX session when its connection ends.
    accept_unknown
        Trade although the sequence has orders of this gateway that the accounts do not have: after a restore that
        could not be newer. Nothing is reserved or settled for these orders.
    grace
        Seconds after a session ends before its orders are cancelled, where it asked for that.
    seconds
        End after so long.
    """
    import asyncio
    from contextlib import suppress

    from isocast.runtime.disk.database import sqlite_url
    from isocast.runtime.market.file import open_market
    from isocast.runtime.net.clock import become_punctual
    from isocast.runtime.net.kernel import forbid_dumps
    from isocast.runtime.operate.floor_change import find_floor
    from isocast.runtime.operate.supervisor import end_with_supervisor
    from isocast.runtime.watch.logs import LogLevel, configure_logs

    with needing_extra("accounts"):
        from isocast.runtime.accounts.desk import DeskPace
        from isocast.runtime.accounts.serving import GatewayPlan, serve_gateway
        from isocast.runtime.accounts.trading import DeskSettings
    market = open_market(config)
    table = find_floor(market, floor)
    if not market.dumpable:
        forbid_dumps()  # Before a key is read.
    configure_logs(level=LogLevel.WARNING)
    folder = market.directory_of("accounts")
    kept = address_of(database, DATABASE) or sqlite_url(folder / "accounts.db")
    fees = table.maker_fee_bp, table.taker_fee_bp
    settings = DeskSettings(floor=table.code, currency=table.currency, fee_bp=fees, collar_bp=collar)
    plan = GatewayPlan(market, source, kept, customer, settings, accept_unknown, DeskPace(grace_s=grace))
    readiness = _Readiness(table.code, 1 + sum([way is not None for way in (https, fix)]))
    ways = _ways(market, folder, https, fix, (certificate, private_key), readiness, cancels=cancel_on_disconnect)
    end_with_supervisor()

    def caught_up() -> None:
        # Its books are read, and all that it needs is imported: none of it is garbage. No realtime: it may wait.
        become_punctual(realtime=False)
        readiness.caught_up()

    async def serve() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await serve_gateway(plan, ways, caught_up)

    shutdown.run(serve())
    return 0


class _Readiness:
    """Tells people what is ready, and a supervisor when everything is."""

    def __init__(self, floor: str, parts: int) -> None:
        self._floor = floor
        self._parts = parts

    def caught_up(self) -> None:
        """It has heard the sequence up to now."""
        note(f"isocast: the gateway of floor {self._floor} takes orders")
        self._one_more()

    def way_in(self, what: str) -> Callable[[Place], None]:
        """What to call once a server listens."""

        def listens(place: Place) -> None:
            note(f"isocast: {what} at {place}")
            self._one_more()

        return listens

    def _one_more(self) -> None:
        from isocast.runtime.watch.logs import notify

        self._parts -= 1
        if not self._parts:
            notify("READY=1")


def _ways(
    market: Market,
    folder: Path,
    https: str | None,
    fix: str | None,
    pair: tuple[Path | None, Path | None],
    readiness: _Readiness,
    *,
    cancels: bool,
) -> list[WayIn]:
    """The servers that traders come to."""
    from isocast.runtime.market.tls_files import TRADING_GATEWAY
    from isocast.runtime.net.tls import service_tls

    found: list[WayIn] = []
    with needing_extra("websocket"):
        from isocast.runtime.accounts.ways_in import fix_way, https_way, place_of

    if https is not None:
        place = place_of(https, "--https")
        tls = service_tls(market, TRADING_GATEWAY, place.address, *pair)
        said = "HTTP on this machine alone" if tls is None else "HTTPS"
        found.append(https_way(place, tls, readiness.way_in(said)))
    if fix is not None:
        place = place_of(fix, "--fix")
        tls = service_tls(market, TRADING_GATEWAY, place.address, *pair)
        said = "FIX on this machine alone" if tls is None else "FIX with TLS"
        found.append(fix_way(place, tls, folder, readiness.way_in(said), cancels=cancels))
    return found


@app.command(
    help_epilogue="""Example:

    isocast trading-gateway certificate gateway.example 192.0.2.7 --config market.toml

Run it where tls/ca.key is, and copy tls/trading-gateway.crt and .key to where the gateway runs. Traders get tls/ca.crt.
"""
)
def certificate(
    *hosts: str,
    config: Config = None,
    days: CertificateDays = 825,
    json: Flag = False,
) -> int:
    """Make the certificate of a gateway's ways in by the market's own authority (`isocast certs init` makes that).

    Parameters
    ----------
    hosts
        Names and addresses by which traders reach the gateway.
    json
        Print one JSON object instead of a line.
    """
    from isocast.runtime.market.file import open_market
    from isocast.runtime.market.tls_files import TRADING_GATEWAY

    return certify(TRADING_GATEWAY, "gateway", hosts, open_market(config), days, as_json=json)
