"""`isocast accounts`: a gateway's books."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.databases import BooksUrl, address_of, needing_extra
from isocast.cli.options import Config, Count, Flag
from isocast.cli.render import line, note, show_json, show_table, working
from isocast.orders.accounts import amount_text, cash, is_house, name_of, parse_amount, parse_sum, shares
from isocast.orders.controls import Block, BlockScope
from isocast.orders.desk import Scope
from isocast.orders.ledger import Entry
from isocast.orders.ledger import deposit as deposit_entry
from isocast.orders.ledger import withdraw as withdraw_entry
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import minute_text
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.runtime.accounts.audit import BooksAudit
    from isocast.runtime.accounts.book import AccountBook
    from isocast.runtime.accounts.tables import AccountsDatabase

__all__ = ["app"]

app = App(
    name="accounts",
    help="A gateway's accounts: money and shares of traders, every entry that changed them, and an audit.",
    help_epilogue="Start with:\n\n    isocast accounts open Ada --database sqlite:///accounts.db\n",
)

app.command("isocast.cli.accounts_export:export", name="export")

DATABASE = "ISOCAST_ACCOUNTS_DATABASE"
"""Of the environment: a URL that may have a password in it."""
_WRONG = 1


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class BooksPlace:
    """Where the books are."""

    config: Config = None
    database: BooksUrl = None

    def url(self) -> str:
        """Where they are; ConfigurationError for a password that everybody could see."""
        from isocast.runtime.disk.database import sqlite_url
        from isocast.runtime.market.file import open_market

        given = address_of(self.database, DATABASE)
        return given or sqlite_url(open_market(self.config).directory_of("accounts") / "accounts.db")

    @contextmanager
    def place(self) -> Iterator[AccountsDatabase]:
        """The database."""
        with needing_extra("accounts"):
            from isocast.runtime.accounts.tables import AccountsDatabase

            database = AccountsDatabase(self.url())
        try:
            yield database
        finally:
            database.close()

    @contextmanager
    def open(self) -> Iterator[AccountBook]:
        """The books that are there."""
        with self.place() as database:
            from isocast.runtime.accounts.book import AccountBook

            yield AccountBook(database)


_KEPT = BooksPlace()
Who = Annotated[str, Parameter(help="Number or name of the account.")]
Limit = Annotated[int | None, Parameter(validator=Number(gte=0, lt=1 << 62))]
Key = Annotated[str | None, Parameter(help="Names this booking: repeated with the same key, it is made once.")]


@app.command(
    name="open",
    help_epilogue="""Examples:

    isocast accounts open Ada --database sqlite:///accounts.db

    isocast accounts open "Smith Brokers" --gateway 2 --database postgresql://gateway@db.example/accounts

A password of the database belongs into ISOCAST_ACCOUNTS_DATABASE or ~/.pgpass, never into a command.
""",
)
def open_account(name: str, /, *, kept: BooksPlace = _KEPT, gateway: Count | None = None, json: Flag = False) -> int:
    """Open an account; the first one makes the books.

    Parameters
    ----------
    name
        That nobody has yet.
    gateway
        Whose account it is: it is part of its number. Left out, that of the books; new ones are gateway 1's.
    json
        Print one JSON object instead of a line.
    """
    with kept.place() as database:
        from isocast.runtime.accounts.book import AccountBook

        made = AccountBook.create(database, gateway)
        if made:
            note(f"made the books of gateway {database.gateway()} in {database.place}")
        account = AccountBook(database).open(name)
    if json:
        show_json(asdict(account))
    else:
        line(f"{account.name} has account {account.number}.")
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast accounts deposit Ada "5,000.00 USD" --database sqlite:///accounts.db

    isocast accounts deposit Ada "250 EUR" --key wire-77 --memo "transfer of 16 November" --database sqlite:///accounts.db
"""
)
def deposit(
    who: Who, amount: str, /, *, kept: BooksPlace = _KEPT, key: Key = None, memo: str = "", json: Flag = False
) -> int:
    """Put money into an account, from the world.

    Parameters
    ----------
    amount
        Such as "1250.50 USD", with up to four decimals.
    memo
        What the statement says.
    json
        Print one JSON object instead of a line.
    """
    return _book(deposit_entry, who, *_sum(amount), kept, key, memo, json=json)


@app.command(help_epilogue='Example:\n\n    isocast accounts withdraw Ada "100 USD" --database sqlite:///accounts.db\n')
def withdraw(
    who: Who, amount: str, /, *, kept: BooksPlace = _KEPT, key: Key = None, memo: str = "", json: Flag = False
) -> int:
    """Pay money out of an account: at most what is available.

    Parameters
    ----------
    amount
        Such as "1250.50 USD", with up to four decimals.
    memo
        What the statement says.
    json
        Print one JSON object instead of a line.
    """
    return _book(withdraw_entry, who, *_sum(amount), kept, key, memo, json=json)


@app.command(
    help_epilogue="""Examples:

    isocast accounts grant Ada IBM 100 --database sqlite:///accounts.db

    isocast accounts grant Ada IBM 100 --take --database sqlite:///accounts.db
"""
)
def grant(
    who: Who,
    symbol: str,
    quantity: str,
    /,
    *,
    kept: BooksPlace = _KEPT,
    take: Flag = False,
    key: Key = None,
    memo: str = "",
    json: Flag = False,
) -> int:
    """Put shares into an account, from the world; or take them out of it.

    Parameters
    ----------
    symbol
        Of the shares.
    quantity
        How many.
    take
        Take them out.
    memo
        What the statement says.
    json
        Print one JSON object instead of a line.
    """
    asset = _asset(symbol, is_symbol=True)
    entry = withdraw_entry if take else deposit_entry
    return _book(entry, who, asset, _amount(quantity, asset), kept, key, memo, json=json)


@app.command(
    help_epilogue="""Examples:

    isocast accounts limit Ada USD 10,000 --database sqlite:///accounts.db

    isocast accounts limit Ada IBM 500 --short --database sqlite:///accounts.db
"""
)
def limit(
    who: Who, asset: str, amount: str, /, *, kept: BooksPlace = _KEPT, short: Flag = False, json: Flag = False
) -> int:
    """Let an account owe money, or sell shares that it has not; 0 ends it.

    Parameters
    ----------
    asset
        A currency; with --short a symbol.
    amount
        How far below zero the account may go.
    short
        Shares, not money.
    json
        Print one JSON object instead of a line.
    """
    of = _asset(asset, is_symbol=short)
    units = _amount(amount, of)
    with kept.open() as book:
        account = book.account(who)
        book.set_limit(account.number, of, units)
    if json:
        show_json({"account": account.number, "asset": of, "limit": units})
    else:
        line(f"{account.name} may {'sell short' if short else 'owe'} up to {amount_text(of, units)}.")
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast accounts freeze Ada --reason "court order 12/26" --database sqlite:///accounts.db

    isocast accounts freeze Ada --lift --database sqlite:///accounts.db
"""
)
def freeze(who: Who, /, *, kept: BooksPlace = _KEPT, reason: str = "", lift: Flag = False, json: Flag = False) -> int:
    """Let an account spend nothing new; what is ordered already goes its way.

    Parameters
    ----------
    reason
        Which `show` tells.
    lift
        Let it spend again.
    json
        Print one JSON object instead of a line.
    """
    with kept.open() as book:
        account = book.account(who)
        book.freeze(account.number, reason, frozen=not lift)
    if json:
        show_json({"account": account.number, "frozen": not lift, "reason": reason})
    else:
        line(f"{account.name} {'may spend again' if lift else 'spends nothing new'}.")
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast accounts show --database sqlite:///accounts.db

    isocast accounts show Ada --database sqlite:///accounts.db
"""
)
def show(who: str | None = None, /, *, kept: BooksPlace = _KEPT, json: Flag = False) -> int:
    """List the accounts, or what one of them has.

    Parameters
    ----------
    who
        Number or name of one account.
    json
        Print one JSON object instead of a table.
    """
    with kept.open() as book:
        if who is None:
            accounts = book.accounts()
            if json:
                show_json([asdict(account) for account in accounts])
                return 0
            rows = [
                (
                    str(account.number),
                    account.name,
                    minute_text(account.opened_ns),
                    _frozen(account.frozen, account.reason),
                )
                for account in accounts
                if not is_house(account.number)
            ]
            show_table(f"Accounts of gateway {book.gateway}", ("number", "name", "opened", ""), rows)
            return 0
        account = book.account(who)
        holdings = book.holdings(account.number)
        if json:
            held = [{"asset": one.asset, **one.balance._asdict(), "limit": one.limit} for one in holdings]
            show_json({**asdict(account), "holdings": held})
            return 0
        table = [
            (
                amount_text(one.asset, one.balance.available),
                amount_text(one.asset, one.balance.reserved),
                amount_text(one.asset, one.limit),
            )
            for one in holdings
        ]
        state = _frozen(account.frozen, account.reason)
        title = f"{account.name}, account {account.number}{', ' if state else ''}{state}"
        show_table(title, ("available", "reserved", "may owe"), table)
        return 0


@app.command(
    help_epilogue="""Examples:

    isocast accounts statement Ada --database sqlite:///accounts.db

    isocast accounts statement Ada --last 20 --json --database sqlite:///accounts.db
"""
)
def statement(who: Who, /, *, kept: BooksPlace = _KEPT, last: Count | None = None, json: Flag = False) -> int:
    """List what changed an account, oldest first, with what it had afterwards.

    Parameters
    ----------
    last
        Only so many changes, the newest.
    json
        Print one JSON object a line instead of a table.
    """
    from collections import deque

    with kept.open() as book:
        account = book.account(who)
        lines = deque(book.statement(account.number), maxlen=last)
    if json:
        for one in lines:
            show_json(asdict(one))
        return 0
    rows = [
        (
            minute_text(one.at_ns),
            one.kind,
            amount_text(one.asset, one.amount),
            one.pot,
            amount_text(one.asset, one.after),
            one.memo or one.key,
        )
        for one in lines
    ]
    show_table(f"{account.name}, account {account.number}", ("when", "what", "amount", "of", "afterwards", ""), rows)
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast accounts audit --database sqlite:///accounts.db

    isocast accounts audit sqlite:///london.db sqlite:///sydney.db --settled

Exit code: 0 everything adds up, 1 it does not, 2 bad input.
"""
)
def audit(*databases: str, kept: BooksPlace = _KEPT, settled: Flag = False, json: Flag = False) -> int:
    """Add up every entry again, and compare with what accounts have and orders have bound.

    Parameters
    ----------
    databases
        Of several gateways, each a URL or a market's file: what passes between them is added up, too, and what each
        owes another, net.
    settled
        All trades are settled: then what passes between gateways must be zero.
    json
        Print one JSON object instead of a table.
    """
    places = [
        BooksPlace(Path(one), None) if one.endswith(".toml") else BooksPlace(kept.config, one) for one in databases
    ] or [kept]
    with needing_extra("accounts"):
        from isocast.runtime.accounts.audit import audit as audit_books
        from isocast.runtime.accounts.audit import clearing_of_all, net_between
    with ExitStack() as stack:
        opened = [stack.enter_context(place.place()) for place in places]
        with working("adding up", quiet=json):
            reports = [audit_books(database) for database in opened]
            netting = net_between(opened)
    if len({report.gateway for report in reports}) < len(reports):
        raise ConfigurationError("command line", "DATABASES", "name a gateway twice: each has one database")
    unsettled = clearing_of_all(reports)
    sound = all(report.is_sound for report in reports) and not (settled and unsettled)
    if json:
        owed = [debt._asdict() for debt in netting.debts()]
        said = {"gateways": [asdict(report) for report in reports], "unsettled": unsettled, "between": owed}
        show_json({**said, "sound": sound})
        return 0 if sound else _WRONG
    rows = [
        (
            str(report.gateway),
            f"{report.accounts:,}",
            f"{report.entries:,}",
            f"{report.reservations:,}",
            "sound" if report.is_sound else counted(len(report.findings) + report.more, "finding"),
        )
        for report in reports
    ]
    show_table("Books", ("gateway", "accounts", "entries", "reservations", ""), rows)
    for report in reports:
        for finding in report.findings:
            line(f"gateway {report.gateway}: {finding}")
        if report.more:
            line(f"gateway {report.gateway}: and {report.more:,} more")
    _show_conserved(reports)
    for debt in netting.debts():
        line(f"Gateway {debt.debtor} owes gateway {debt.creditor} {amount_text(debt.asset, debt.amount)}.")
    for asset, amount in unsettled.items():
        line(f"Not settled between gateways: {amount_text(asset, amount)}.")
    return 0 if sound else _WRONG


def _show_conserved(reports: Sequence[BooksAudit]) -> None:
    """Where everything is, over all gateways: what came from the world is with traders, fees, or between gateways."""
    parts = ("traders", "fees", "clearing", "world")
    sums: dict[str, dict[str, int]] = {}
    for report in reports:
        for asset, held in report.holdings.items():
            total = sums.setdefault(asset, dict.fromkeys(parts, 0))
            for part in parts:
                total[part] += held[part]
    rows = [
        (name_of(asset), *[amount_text(asset, total[part]) for part in parts], amount_text(asset, sum(total.values())))
        for asset, total in sorted(sums.items())
    ]
    show_table("Over all gateways", ("asset", *parts, "in all"), rows)


@app.command(help_epilogue="Example:\n\n    isocast accounts upgrade --database sqlite:///accounts.db\n")
def upgrade(*, kept: BooksPlace = _KEPT, json: Flag = False) -> int:
    """Bring the books of an older version up to date, in one transaction; a copy of the database first is wise.

    Parameters
    ----------
    json
        Print one JSON object instead of a line.
    """
    with kept.place() as database:
        changed = database.upgrade()
        if json:
            show_json({"database": database.place, "changed": changed})
        else:
            line(f"{database.place} is {'now' if changed else 'already'} of today.")
    return 0


# ---- who may trade, and how much


@app.command(
    help_epilogue="""Examples:

    isocast accounts password Ada --database sqlite:///accounts.db

    isocast accounts password Ada --name ada.fix --file ada.password --database sqlite:///accounts.db

The password is typed unseen, or read from standard input or a file that nobody else can read; never from a command.
"""
)
def password(
    who: Who, /, *, kept: BooksPlace = _KEPT, name: str | None = None, file: Path | None = None, json: Flag = False
) -> int:
    """Let somebody in by a name and a password, and by no older password.

    Parameters
    ----------
    name
        By which he comes in; the account's own if left out.
    file
        That has the password in its first line.
    json
        Print one JSON object instead of a line.
    """
    with kept.place() as database:
        from isocast.runtime.accounts.book import AccountBook
        from isocast.runtime.accounts.logins import Logins

        account = AccountBook(database).account(who)
        login = name or account.name
        Logins(database).set_password(login, account.number, _secret(file, f"New password of {login}: "))
    if json:
        show_json({"account": account.number, "name": login})
    else:
        line(f"{login} comes in by the new password, for account {account.number}.")
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast accounts token Ada --scope trade --scope read --database sqlite:///accounts.db

    isocast accounts token Ada --label "risk screen" --days 30 --database sqlite:///accounts.db
"""
)
def token(
    who: Who,
    /,
    *,
    kept: BooksPlace = _KEPT,
    scope: Annotated[list[Scope] | None, Parameter(negative="")] = None,
    label: str = "",
    days: Count = 90,
    json: Flag = False,
) -> int:
    """Make an API token for an account. It is printed this once, and kept as a digest.

    Parameters
    ----------
    scope
        What it may do, once for each; left out, read.
    label
        What it is for.
    days
        How long it is good.
    json
        Print one JSON object instead of lines.
    """
    from time import time_ns

    from isocast.terms.instants import SECOND

    scopes = sorted(set(scope or [Scope.READ]))
    expires = time_ns() + days * 86_400 * SECOND
    with kept.place() as database:
        from isocast.runtime.accounts.book import AccountBook
        from isocast.runtime.accounts.logins import Logins

        account = AccountBook(database).account(who)
        made = Logins(database).make_token(account.number, label, scopes, expires)
    if json:
        show_json({"account": account.number, "token": made, "scopes": scopes, "expires_ns": expires})
    else:
        note(f"isocast: it may {' and '.join(scopes)} until {minute_text(expires)}; it is not shown again")
        line(made)
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast accounts revoke Ada --database sqlite:///accounts.db

    isocast accounts revoke Ada --label "risk screen" --database sqlite:///accounts.db

A gateway that runs believes a token for some seconds more, and ends the FIX sessions and WebSockets that came in by it.
"""
)
def revoke(who: Who, /, *, kept: BooksPlace = _KEPT, label: str | None = None, json: Flag = False) -> int:
    """Let nobody in by an account's API tokens any more, such as one that was stolen.

    Parameters
    ----------
    label
        Only those that were made with this label.
    json
        Print one JSON object instead of a line.
    """
    with kept.place() as database:
        from isocast.runtime.accounts.book import AccountBook
        from isocast.runtime.accounts.logins import Logins

        account = AccountBook(database).account(who)
        count = Logins(database).revoke_tokens(account.number, label)
    if json:
        show_json({"account": account.number, "revoked": count})
    else:
        line(f"API tokens of {account.name} that are revoked: {count:,}.")
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast accounts kill Ada --reason "fat finger" --database sqlite:///accounts.db

    isocast accounts kill "Smith Brokers" --customer 17 --database sqlite:///accounts.db

    isocast accounts kill --gateway --reason "storm" --database sqlite:///accounts.db

    isocast accounts kill --list --database sqlite:///accounts.db
"""
)
def kill(
    who: str | None = None,
    /,
    *,
    kept: BooksPlace = _KEPT,
    customer: Annotated[int, Parameter(validator=Number(gte=0, lt=1 << 32))] = 0,
    gateway: Flag = False,
    reason: str = "",
    listed: Annotated[bool, Parameter(name="--list", negative="")] = False,
    json: Flag = False,
) -> int:
    """Stop an account, a broker's customer or the whole gateway at once: live orders are cancelled, new ones refused.

    Works beside a gateway that runs, which cancels within a second, and on one that does not, which cancels when it
    starts. Cancels are always possible. `unkill` lifts it.

    Parameters
    ----------
    who
        Number or name of the account.
    customer
        Only this customer of a broker.
    gateway
        Everybody.
    reason
        Which those who are refused are told.
    listed
        Only list who is stopped.
    json
        Print one JSON object instead of lines.
    """
    from time import time_ns

    with kept.place() as database:
        from isocast.runtime.accounts.kills import blocks_in, kill_in

        database.gateway()
        if listed:
            with database.reading() as connection:
                blocks = blocks_in(connection)
            if json:
                show_json([block._asdict() for block in blocks])
            else:
                rows = [(one.scope, str(one.account or ""), str(one.owner or ""), one.reason) for one in blocks]
                show_table("Stopped", ("whom", "account", "customer", ""), rows)
            return 0
        block = _block(database, who, customer, reason, is_gateway=gateway)
        with database.writing() as connection:
            count = kill_in(connection, block, time_ns())
    if json:
        show_json({**block._asdict(), "cancels": count})
    else:
        line(f"The {block.scope} is stopped; {counted(count, 'live order')} will be cancelled.")
    return 0


@app.command(help_epilogue="Example:\n\n    isocast accounts unkill Ada --database sqlite:///accounts.db\n")
def unkill(
    who: str | None = None,
    /,
    *,
    kept: BooksPlace = _KEPT,
    customer: Annotated[int, Parameter(validator=Number(gte=0, lt=1 << 32))] = 0,
    gateway: Flag = False,
    json: Flag = False,
) -> int:
    """Let an account, a customer or the gateway trade again.

    Parameters
    ----------
    who
        Number or name of the account.
    customer
        Only this customer of a broker.
    gateway
        Everybody who is not stopped for himself.
    json
        Print one JSON object instead of a line.
    """
    with kept.place() as database:
        from isocast.runtime.accounts.kills import lift_in

        block = _block(database, who, customer, "", is_gateway=gateway)
        with database.writing() as connection:
            lifted = lift_in(connection, block)
    if json:
        show_json({**block._asdict(), "lifted": lifted})
    else:
        line(f"The {block.scope} {'may trade again' if lifted else 'was not stopped'}.")
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast accounts controls Ada --database sqlite:///accounts.db

    isocast accounts controls Ada --quantity 10000 --rate 500 --database sqlite:///accounts.db
"""
)
def controls(
    who: Who,
    /,
    *,
    kept: BooksPlace = _KEPT,
    quantity: Limit = None,
    value: Annotated[str | None, Parameter(help="Largest value of one order, such as 50,000; 0: none.")] = None,
    collar: Limit = None,
    rate: Limit = None,
    open_orders: Limit = None,
    json: Flag = False,
) -> int:
    """Show or set what an account may do before the market: 0 is no limit.

    Parameters
    ----------
    quantity
        Largest quantity of one order.
    collar
        How far a price may be from the reference, in basis points.
    rate
        Messages a second, cancels aside.
    open_orders
        Orders that may live at once.
    json
        Print one JSON object instead of a table.
    """
    with kept.place() as database:
        from isocast.runtime.accounts.book import AccountBook
        from isocast.runtime.accounts.kills import limits_in, set_limits_in

        account = AccountBook(database).account(who)
        asked = {
            "quantity": quantity,
            "value": None if value is None else _amount(value, cash("USD")),
            "collar_bp": collar,
            "rate": rate,
            "open_orders": open_orders,
        }
        given = {name: number for name, number in asked.items() if number is not None}
        with database.writing() as connection:
            limits = limits_in(connection, account.number)._replace(**given)
            if given:
                set_limits_in(connection, account.number, limits)
    if json:
        show_json({"account": account.number, **limits._asdict()})
        return 0
    rows = [(name.replace("_", " "), f"{number:,}" if number else "none") for name, number in limits._asdict().items()]
    show_table(f"{account.name}, account {account.number}", ("control", "limit"), rows)
    return 0


# ---- what commands share


def _secret(file: Path | None, prompt: str) -> str:
    """What must not be in a command: of a file, typed unseen, or from standard input."""
    import sys
    from getpass import getpass

    if file is not None:
        from isocast.runtime.market.secret_files import OTHERS, read_file

        return read_file(file, 4_096, OTHERS).decode(errors="replace").partition("\n")[0]
    return getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")


def _block(database: AccountsDatabase, who: str | None, customer: int, reason: str, *, is_gateway: bool) -> Block:
    """Whom a kill switch is about."""
    from isocast.runtime.accounts.book import AccountBook

    if is_gateway == (who is not None) or (is_gateway and customer):
        raise ConfigurationError("command line", "WHO", "name an account, or say --gateway")
    book = AccountBook(database)
    if who is None:
        return Block(BlockScope.GATEWAY, reason=reason)
    account = book.account(who)
    if is_house(account.number):
        raise ConfigurationError("command line", "WHO", "is the gateway's own account, which never trades")
    scope = BlockScope.CUSTOMER if customer else BlockScope.ACCOUNT
    return Block(scope, account.number, customer, reason)


def _book(
    entry: Callable[[str, int, str, int, str], Entry],
    who: str,
    asset: str,
    amount: int,
    kept: BooksPlace,
    key: str | None,
    memo: str,
    *,
    json: bool,
) -> int:
    with kept.open() as book:
        account = book.account(who)
        given = key or f"desk/{token_urlsafe(12)}"
        posted = book.post(entry(given, account.number, asset, amount, memo))
        balance = next((one.balance for one in book.holdings(account.number) if one.asset == asset), None)
    has = amount_text(asset, 0 if balance is None else balance.available)
    if json:
        rest = {} if balance is None else balance._asdict()
        show_json({"account": account.number, "asset": asset, "key": given, "posted": posted, **rest})
    else:
        line(f"{account.name} has {has} available{'' if posted else '; this was booked before'}.")
    return 0


def _sum(text: str) -> tuple[str, int]:
    try:
        return parse_sum(text)
    except ValueError as error:
        raise ConfigurationError("command line", "AMOUNT", str(error)) from None


def _asset(name: str, *, is_symbol: bool) -> str:
    try:
        return shares(name) if is_symbol else cash(name)
    except ValueError as error:
        raise ConfigurationError("command line", "SYMBOL" if is_symbol else "ASSET", str(error)) from None


def _amount(text: str, asset: str) -> int:
    try:
        return parse_amount(text, asset)
    except ValueError as error:
        raise ConfigurationError("command line", "AMOUNT", str(error)) from None


def _frozen(frozen: bool, reason: str) -> str:  # noqa: FBT001 - as the account has it
    return "" if not frozen else f"frozen: {reason}" if reason else "frozen"
