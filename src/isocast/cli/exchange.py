"""`isocast exchange`: orders to an exchange by FIX, its reports back, and whether it kept the order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import Config, Flag, Seconds
from isocast.cli.render import Progress, line, note, show_json, show_table
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.orders.delivery import Delivery
    from isocast.runtime.accounts.fix.initiator import Acceptor
    from isocast.runtime.exchange.directing import ExchangeFollower
    from isocast.runtime.market.model import Market

__all__ = ["app"]

app = App(
    name="exchange",
    help="Deliver orders to an exchange in the order of the sequence, and audit what it made of it.",
    help_epilogue="Start with:\n\n    isocast exchange run --exchange XLON --source floor --fix 127.0.0.1:9878\n",
)

_SHOWN = 20
"""Departures of a table."""
_WRONG = 1
_CODE_MAX = 12
_CODE = Annotated[str, Parameter(name=["--exchange"])]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class ExchangeSession:
    """The FIX session with the exchange."""

    fix: str
    """HOST:PORT of the exchange's FIX acceptor."""
    comp_id: str = "ISOCAST"
    """Our CompID."""
    target: str | None = None
    """The exchange's CompID; left out, its code."""
    user: str | None = None
    """Username (553) of our Logon, if the exchange wants one."""
    password_file: Path | None = None
    """A file that only you can read, with the password (554) in its first line."""
    ca: Path | None = None
    """The authority of the exchange's certificate, in PEM: the session is by TLS 1.3. Needed away from this machine."""
    heartbeat: Annotated[int, Parameter(validator=Number(gte=1, lte=3_600))] = 10
    """Seconds between heartbeats."""
    reset: Flag = False
    """Begin the numbers of both sides at 1 again, once: after one side has lost its own."""

    def acceptor(self, code: str) -> Acceptor:
        """Whom to connect to; ConfigurationError for what is no place, or a secret that others can read."""
        from isocast.runtime.accounts.fix.initiator import Acceptor
        from isocast.runtime.market.secret_files import OTHERS, read_file
        from isocast.runtime.net.tls import trusting

        host, colon, port = self.fix.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ConfigurationError(
                "command line", "--fix", f"must be HOST:PORT, such as 127.0.0.1:9878: {self.fix!r}"
            )
        logon = [] if self.user is None else [(553, self.user)]
        if self.password_file is not None:
            secret = read_file(self.password_file, 4_096, OTHERS).decode(errors="replace").partition("\n")[0]
            logon.append((554, secret))
        tls = None if self.ca is None else trusting(self.ca)
        return Acceptor(host, int(port), self.comp_id, self.target or code, tls, self.heartbeat, tuple(logon))


@app.command(
    help_epilogue="""Examples:

    isocast exchange run --exchange XLON --source london-floor --fix 127.0.0.1:9878

    isocast exchange run --exchange XLON --source london-floor --fix fix.example:9878 --ca ca.crt --password-file pw

What was delivered, and how far, is in the market's data directory under exchange-CODE: keep it. An exchange that is
gone is an alarm on standard error, and is tried again. Exit code: 0 it was stopped, 1 it cannot go on, 2 bad input.
"""
)
def run(
    *,
    session: ExchangeSession,
    exchange: _CODE,
    source: str,
    config: Config = None,
    customer: str | None = None,
    window: Annotated[int, Parameter(validator=Number(gte=1, lte=65_536))] = 1_000,
    seconds: Seconds | None = None,
) -> int:
    """Give an exchange the orders that are directed to it, in the order of the sequence, and publish its reports.

    It hears the sequence as a complete customer from where it was, and each order is delivered once, whatever dies on
    either side. Reports are opaque messages of the topic exchange/CODE, each with the place of its order.

    Parameters
    ----------
    exchange
        Its code, such as XLON: orders of the topic floor/CODE are directed to it.
    source
        At whose door its reports are published.
    customer
        As whom it hears the sequence; left out, wherever there is room.
    window
        Requests that the exchange may have without an answer.
    seconds
        End after so long.
    """
    import asyncio
    from contextlib import suppress
    from time import time_ns

    from isocast.runtime.exchange.delivery import DeliveryPace
    from isocast.runtime.exchange.serving import ExchangePlan, serve_exchange
    from isocast.runtime.market.file import open_market
    from isocast.runtime.net.kernel import forbid_dumps
    from isocast.runtime.operate import shutdown
    from isocast.runtime.watch.logs import LogLevel, configure_logs
    from isocast.runtime.watch.status import Alarms

    market = open_market(config)
    folder = _folder(market, exchange)
    if not market.dumpable:
        forbid_dumps()  # Before a key is read.
    acceptor = session.acceptor(exchange)
    configure_logs(level=LogLevel.ERROR)
    alarms = Alarms()

    def alarm(code: str, text: str, remedy: str) -> None:
        if alarms.raise_alarm(f"{code}: {text}", text, remedy, time_ns()):
            note(f"isocast: {text} ({remedy})")

    pace = DeliveryPace(window=window)
    plan = ExchangePlan(market, exchange, source, acceptor, folder, customer, session.reset, pace)

    async def serve() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await serve_exchange(plan, alarm, lambda: note(f"isocast: delivers to {acceptor}"))

    shutdown.run(serve())
    return 0


def _folder(market: Market, code: str) -> Path:
    """Where an exchange's state is; ConfigurationError for what is no code."""
    if not (0 < len(code) <= _CODE_MAX and code.isascii() and code.isalnum()):
        rule = f"must be 1 to {_CODE_MAX} letters and digits, such as XLON, not {code!r}"
        raise ConfigurationError("command line", "--exchange", rule)
    return market.directory_of(f"exchange-{code}")


@app.command(
    help_epilogue="""Examples:

    isocast exchange show --exchange XLON --config market.toml

    isocast exchange show --exchange XLON --json
"""
)
def show(*, exchange: _CODE, config: Config = None, json: Flag = False) -> int:
    """Show how far the delivery to an exchange has come, whether it runs or not.

    Parameters
    ----------
    exchange
        Its code, such as XLON.
    json
        Print one JSON object instead of a table.
    """
    from isocast.runtime.exchange.serving import spool_path
    from isocast.runtime.exchange.spool import Spool
    from isocast.runtime.market.file import open_market

    path = spool_path(_folder(open_market(config), exchange))
    if not path.exists():
        rule = f"nothing was delivered to {exchange} from here: there is no {path}"
        raise ConfigurationError("command line", "--exchange", rule)
    spool = Spool(path, exchange, is_new=False)
    try:
        state = spool.state()
    finally:
        spool.close()
    found = {**state._asdict(), "oldest": None if state.oldest is None else str(state.oldest)}
    if json:
        show_json(found)
        return 0
    rows = [
        ("heard up to sequence", f"{state.sequence:,}"),
        ("requests without an answer", f"{state.waiting:,}"),
        ("the oldest of them", found["oldest"] or "–"),
        ("orders that live there", f"{state.live:,}"),
        ("messages that were no event", f"{state.unreadable:,}"),
    ]
    show_table(f"Exchange {exchange}", ("", ""), [(name, str(value)) for name, value in rows])
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast exchange audit data/london/journal --exchange XLON

    isocast exchange audit data/london/journal --exchange XLON --json

Exit code: 0 the exchange kept the order of the sequence, 1 it departed from it, 2 there is no journal.
"""
)
def audit(journal: Path, /, *, exchange: _CODE, json: Flag = False) -> int:
    """Show where an exchange departed from the order of the sequence: overtaken, skipped, unknown, foreseen.

    It needs nothing but a journal: orders are in it, and the exchange's reports, each with the place of its order.

    Parameters
    ----------
    journal
        A site's journal, from the first sequence on. It may be in use.
    exchange
        Its code, such as XLON.
    json
        Print one JSON object instead of text.
    """
    from isocast.orders.delivery import Place
    from isocast.runtime.disk.journal_reader import JournalReader
    from isocast.runtime.disk.journal_segments import segment_files
    from isocast.runtime.exchange.directing import ExchangeFollower
    from isocast.terms.errors import JournalError

    if not journal.exists() or not segment_files(journal):
        raise ConfigurationError("command line", str(journal), "there is no journal")
    reader = JournalReader(journal)
    first, end = reader.span() or (1, 1)
    if first > 1:
        rule = f"begins with sequence {first:,}: orders before it would be missing; fetch the rest"
        raise JournalError(str(journal), rule)
    follower = ExchangeFollower(exchange)
    with Progress("sequences", end, quiet=json) as progress:
        for _, _, sequence, index, message in reader.opaque_messages():
            progress.reach(sequence)
            follower.hear(Place(sequence, index), message.topic, message.payload)
    found = follower.audit()
    if json:
        show_json(_as_json(exchange, follower, found))
    else:
        _show(exchange, follower, found)
    return 0 if found.is_kept else _WRONG


def _as_json(code: str, follower: ExchangeFollower, found: Delivery) -> dict[str, object]:
    return {
        "exchange": code,
        "is_kept": found.is_kept,
        "requests": found.orders,
        "taken": found.taken,
        "waiting": found.waiting,
        "declined": follower.declined,
        "unreadable": follower.unreadable,
        "departures": [
            {
                "kind": one.kind.value,
                "order": str(one.order),
                "report": None if one.report is None else str(one.report),
                "before": None if one.before is None else str(one.before),
            }
            for one in found.departures
        ],
    }


def _show(code: str, follower: ExchangeFollower, found: Delivery) -> None:
    taken = f"{found.taken:,} taken, {found.waiting:,} waiting, {follower.declined:,} declined"
    line(f"Exchange {code}: {counted(found.orders, 'request')} directed to it, {taken}.")
    if follower.unreadable:
        line(f"{counted(follower.unreadable, 'message')} of its topics are nothing of the kind, and change nothing.")
    if found.is_kept:
        line("KEPT: no request was taken in another order than that of the sequence.")
        return
    line(f"DEPARTED: {counted(len(found.departures), 'departure')}.")
    rows = [(one.kind.value, str(one.order), str(one)) for one in found.departures[:_SHOWN]]
    show_table("Departures", ("kind", "order", "what happened"), rows)
    if len(found.departures) > _SHOWN:
        line(f"and {len(found.departures) - _SHOWN:,} more: --json has all")
