"""The reference of the trading service from its routes: `python -m tools.trading_api` writes the page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from isocast.orders.desk import Reason
from isocast.runtime.accounts.web import EXAMPLE, INTRODUCTION, ROUTES
from isocast.runtime.accounts.web_faults import STATUSES, Fault
from isocast.runtime.accounts.web_forms import REPORT_SCHEMA
from isocast.runtime.net.json_service import REQUIRED, Field

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "trading-api.md"
_HEAD = """# The trading service

A gateway's way in for programs, over HTTPS. Made from the routes by `python -m tools.trading_api`; a running service
describes itself at `/` for people and at `/v1/openapi.json` (OpenAPI 3.1) for programs.
[How to trade from Python](../how-to/trade-from-python.md) needs none of this.
"""
_MEANINGS = {
    Reason.MALFORMED: "a field is missing, contradicts another or is out of range: `field` names it",
    Reason.CLIENT_ID_USED: "the same `client_id` was used for something else: take another",
    Reason.UNKNOWN_SYMBOL: "nothing of that name is traded",
    Reason.UNKNOWN_ORDER: "there is none of that id, or it has ended",
    Reason.QUANTITY: "beyond the largest of one order, or not above zero",
    Reason.VALUE: "beyond the largest value of one order",
    Reason.COLLAR: "too far from the reference price",
    Reason.RATE: "too many messages a second of this account",
    Reason.OPEN_ORDERS: "too many orders are open",
    Reason.BLOCKED: "a kill switch is set, or the account is frozen",
    Reason.REFERENCE: "a market order while there is no reference price",
    Reason.FUNDS: "too little money is available",
    Reason.SHARES: "too few shares are available",
    Reason.UNAVAILABLE: "not now: send the same request again, under the same `client_id`",
    Reason.DUPLICATE_ID: "the floor has an order of this id",
    Reason.FLAGS: "these terms do not go together",
    Reason.WRONG_PHASE: "the symbol's session does not take this now",
    Reason.LOT: "no whole number of lots",
    Reason.TICK: "no whole number of ticks",
    Reason.WOULD_TRADE: "post only, and it would trade at once",
    Reason.OWN: "it would trade with an order of one's own",
    Reason.TOO_LATE: "it came after its deadline",
    Reason.PRICE: "the price is none that the floor takes",
    Fault.UNAUTHORISED: "no token, or one that nobody knows any more",
    Fault.FORBIDDEN: "the token lacks the scope that this needs",
    Fault.UNKNOWN_PATH: "nothing is served there",
    Fault.METHOD: "it is asked for in another way",
    Fault.LIMITED: "too many requests, attempts or watchers: wait a minute",
    Fault.HTTP: "it cannot be read as a request (also 405, 408, 411, 413, 414 and 431)",
    Fault.FAILED: "a fault of the service: send the same request again",
    Fault.UNSUPPORTED: "this gateway has no WebSocket: ask `GET /v1/reports`",
}
_TAIL = """
## Limits

| what | how many |
|---|---|
| requests of an address | 6,000 a minute |
| requests of an account | 3,000 a minute; cancels always pass |
| attempts to log in | 30 a minute of an address, 10 of a name from there |
| unknown tokens | 60 a minute of an address |
| sessions of an account | 32, each for 12 hours; the oldest ends |
| WebSockets of an account | 16 |
| a body | 65,536 bytes |

A connection carries one request after the other, and ends after a minute without one; or one WebSocket. The service
speaks TLS 1.3; without TLS it serves loopback alone.

## The WebSocket

`wss://HOST:PORT/v1/watch?after=N` sends each report after number N as one text message, first those of the past, then
those to come. The service pings every 20 seconds. Whoever takes nothing, or answers no ping, for 20 seconds is cut off;
nothing is lost, because a reader comes back with the number of the last report that it has. A reader has nothing to say
there: orders go by `POST /v1/orders`. With `cancel_on_disconnect=true` the session ends with the connection, and all
live orders that it entered are cancelled; this needs the token of a session, from `POST /v1/login`. A gateway that
stops or dies cancels nothing.
"""


def page() -> str:
    """The whole page."""
    routes = [f"| `{one.method} {one.path}` | {one.who.value} | {_sentence(one.summary)} |" for one in ROUTES]
    reasons = [f"| `{one.value}` | {STATUSES[one].value} | {_MEANINGS[one]} |" for one in [*Reason, *Fault]]
    parts = [
        _HEAD,
        f"{INTRODUCTION}\n",
        f"```sh\n{EXAMPLE}\n```\n",
        "\n".join(["| route | who | what |", "|---|---|---|", *routes, ""]),
        "*read* and *trade* are the scopes of a token: a session has those of its login, an API token its own.\n",
        *[_section(f"{one.method} {one.path}", {**(one.body or {}), **one.query}) for one in ROUTES],
        _report(),
        "\n".join(["## Reasons", "", "| reason | status | meaning |", "|---|---|---|", *reasons]),
        _TAIL.strip("\n"),
    ]
    return "\n".join([part for part in parts if part]) + "\n"


def _section(title: str, fields: dict[str, Field]) -> str:
    if not fields:
        return ""
    rows = [
        f"| `{name}` | {_needed(one)} | {one.kind.wanted} | {_sentence(one.says)} |" for name, one in fields.items()
    ]
    return "\n".join([f"## {title}", "", "| field | left out | value | meaning |", "|---|---|---|---|", *rows, ""])


def _needed(one: Field) -> str:
    match one.default:
        case default if default is REQUIRED:
            return "never"
        case None:
            return "none"
        case bool():
            return f"`{str(one.default).lower()}`"
        case _:
            return f"`{one.default}`"


def _report() -> str:
    properties: dict[str, dict[str, Any]] = REPORT_SCHEMA["properties"]
    rows = [f"| `{name}` | {_sentence(_described(one))} |" for name, one in properties.items()]
    return "\n".join(["## A report", "", "| field of a report | meaning |", "|---|---|", *rows, ""])


def _described(schema: dict[str, Any]) -> str:
    listed = ", ".join(schema.get("enum", []))
    return ": ".join([part for part in (str(schema.get("description", "")).rstrip("."), listed) if part])


def _sentence(text: str) -> str:
    """As a cell has it."""
    return (text if text[1:2].isupper() else text[:1].lower() + text[1:]).rstrip(".")


if __name__ == "__main__":
    sys.exit(PAGE.write_text(page(), encoding="utf-8") == 0)
