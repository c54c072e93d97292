"""`isocast subscribe`: a customer buys, fetches and renews a package at a box office."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from isocast.cli.options import Count, Flag
from isocast.cli.render import line, note, show_json, show_table
from isocast.terms.errors import ConfigurationError, OfficeError, TransportError

if TYPE_CHECKING:
    from isocast.runtime.box_office.client import OfficeClient

__all__ = ["subscribe"]

_EXAMPLES = """Examples:

    isocast subscribe https://office.example:8443 --ca ca.pem

    isocast subscribe https://office.example:8443 --ca ca.pem --as Ada --plan basic --out ada.package

    isocast subscribe https://office.example:8443 --ca ca.pem --as Ada --out ada.package --renew

The password is asked for, or read from --password-file. The secret that opens the package never goes to the office:
`isocast listen --package ada.package` asks for it. Exit code: 0 done, 2 bad input or refused, 3 no box office answers.
"""
_RETRY_S = 60.0


subscribe = App(name="subscribe", help_epilogue=_EXAMPLES)


@subscribe.default
def run(  # noqa: PLR0913 - where, who, what, and where to
    url: str,
    *,
    ca: Path | None = None,
    roster: Path | None = None,
    name: Annotated[str | None, Parameter(name="--as")] = None,
    password_file: Path | None = None,
    plan: str | None = None,
    periods: Count = 1,
    pay_by: str = "",
    cancel: Flag = False,
    out: Path | None = None,
    renew: Flag = False,
    json: Flag = False,
) -> int:
    """Buy at a market's box office, and fetch the package of keys; without a name, list what is on sale.

    Parameters
    ----------
    url
        Of the box office: https://HOST:PORT.
    ca
        The CA of the market, in PEM; left out, those that this machine believes.
    roster
        The market's roster.bin: the office's certificate must be the one that it pins.
    name
        Who buys, as the office knows you.
    password_file
        A file that only you can read, with the password; left out, it is asked for.
    plan
        Buy this plan, to be renewed before it ends until you cancel; left out, only fetch.
    periods
        How many periods to buy.
    pay_by
        The payment provider's token; left out, the one used last.
    cancel
        Have the plan renewed no longer; nothing is bought.
    out
        Where to write the package, for its owner alone.
    renew
        Stay, and fetch each next package before this one ends.
    json
        Print one JSON object instead of lines.
    """
    from isocast.runtime.box_office.client import OfficeClient

    client = OfficeClient(url, ca, roster)
    if name is None:
        return _list_plans(client, as_json=json)
    if renew and out is None:
        raise ConfigurationError("command line", "--renew", "needs --out: the file to keep current")
    password = _password(password_file, name)
    client.log_in(name, password)
    if plan is not None and cancel:
        client.stand(plan, renews=False)
    elif plan is not None:
        _buy(client, plan, periods, pay_by)
    if out is not None:
        _fetch(client, out, as_json=json)
    elif json:
        show_json(client.account())
    client.log_out()
    if renew and out is not None:
        _keep_current(client, name, password, out, as_json=json)
    return 0


def _list_plans(client: OfficeClient, *, as_json: bool) -> int:
    plans = client.plans()
    if as_json:
        show_json(plans)
        return 0
    rows = [
        (
            str(plan["name"]),
            str(plan["title"]),
            ", ".join(map(str, plan["services"])),
            f"{plan['price']} {plan['currency']}",
        )
        for plan in plans
    ]
    show_table("Plans on sale", ("plan", "title", "services", "price of a period, minor units"), rows)
    return 0


def _buy(client: OfficeClient, plan: str, periods: int, pay_by: str) -> None:
    """One purchase, asked for again under its key where the answer was lost."""
    from secrets import token_urlsafe

    key = f"subscribe/{token_urlsafe(12)}"
    for last in (False, True):
        try:
            client.buy(plan, key=key, periods=periods, instrument=pay_by, renews=True)
        except TransportError:
            if last:
                raise
        else:
            return


def _fetch(client: OfficeClient, out: Path, *, as_json: bool) -> int:
    """Write the newest package; the first instant for which it has no key."""
    from isocast.runtime.box_office.client import write_package
    from isocast.terms.instants import minute_text

    label = write_package(out, client.package())
    if as_json:
        show_json(
            {
                "file": str(out),
                "buyer": label.buyer,
                "market": label.market_name,
                "number": label.number,
                "begins_ns": label.begins,
                "ends_ns": label.ends,
            }
        )
    else:
        line(f"{out}: the package of {label.buyer} for {label.market_name}, until {minute_text(label.ends)}.")
    return label.ends


def _keep_current(client: OfficeClient, name: str, password: str, out: Path, *, as_json: bool) -> None:
    """Fetch each next package as soon as there is one; whatever fails is tried again until the last one ends."""
    from time import sleep, time_ns

    from isocast.security.packages import read_label
    from isocast.terms.instants import SECOND

    lead = int(client.office()["lead_ns"])
    ends = read_label(out.read_bytes()).ends
    while True:
        sleep(max(_RETRY_S, (ends - lead - time_ns()) / SECOND))
        try:
            client.log_in(name, password)
            ends = _fetch(client, out, as_json=as_json)
            client.log_out()
        except (TransportError, OfficeError) as error:
            if time_ns() >= ends:
                raise
            note(f"isocast: {error}; trying again")


def _password(file: Path | None, name: str) -> str:
    if file is not None:
        from isocast.runtime.market.secret_files import OTHERS, read_file

        return read_file(file, 1_024, OTHERS).decode(errors="replace").strip()
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass(f"Password of {name}: ")
    return sys.stdin.readline().rstrip("\n")
