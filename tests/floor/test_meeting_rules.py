"""Where two rules meet: what goes into a floor, and all that comes of it, in `meeting-rules.txt`; on both floors.

A case is its name, its events, and after `->` the trades, the reports sorted, and what is left: each symbol with its
phase and reference, its orders as they would fill, its stops, lots and offers. A number is an id, the next a quantity,
`@` a price; an account is the id, unless it says `by`.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from isocast.floor import lines
from isocast.floor.fast import FastFloor
from isocast.floor.lines import FloorLines
from isocast.floor.machine import Floor

PAGE = Path(__file__).with_name("meeting-rules.txt").read_text()
Fields = dict[str, Any]


def cases() -> dict[str, tuple[list[str], list[str]]]:
    """Events and what comes of them, by name."""
    found = {}
    for block in PAGE.split("\n\n"):
        name, *rest = block.splitlines()
        if rest:
            events, said = (part.replace("\n", " ").split(";") for part in "\n".join(rest).split("->"))
            found[name] = [one.strip() for one in events], [one.strip() for one in said]
    return found


def event_of(text: str) -> Fields:
    """The fields of `isocast floor lines`."""
    kind, *words = text.split()
    named = dict(word.split("=") for word in words if "=" in word)
    fields: Fields = {name: int(value) if value.isdigit() else value for name, value in named.items()}
    plain = [word for word in words if "=" not in word and word[0] != "@"]
    numbers = [int(word) for word in plain if word.isdigit()]
    flags = [word for word in plain if not word.isdigit()]
    if kind == "listed":
        return {"kind": "directory", "symbol": flags[0] if flags else "X", "phase": "open", **fields}
    if kind == "token":
        return {"kind": kind, "t": numbers[0], "T": numbers[-1] * (1 if len(numbers) > 1 else 1000)}
    if kind == "phase":
        return {"kind": "status", "symbol": "X", "phase": flags[0]}
    fields |= {"id": numbers[0], "account": fields.pop("by", numbers[0]), **dict.fromkeys(flags, True)}
    fields |= dict(zip(("quantity",), numbers[1:], strict=False))
    fields |= dict(zip(("price",), [int(word[1:]) for word in words if word[0] == "@"], strict=False))
    if kind in ("buy", "sell"):
        kind, fields = "order", {"symbol": "X", "price": 0, "side": kind, **fields}
    elif kind == "lot":
        fields = {"symbol": "X", **fields}
    elif kind in ("commit", "reveal"):
        fields["nonce"] = fields["id"].to_bytes(16, "big").hex()
    if kind == "commit":
        price, account, lot = ((fields[name], size) for name, size in (("price", 8), ("account", 4), ("lot", 8)))
        parts = [value.to_bytes(size, "little") for value, size in (price, account, lot)]
        paper = parts[0] + bytes.fromhex(fields["nonce"]) + parts[1] + parts[2]
        fields["hash"] = blake2b(paper, digest_size=32).hexdigest()
    return {"kind": kind, **fields}


def said_of(told: list[Fields]) -> list[str]:
    """What came out, as the page writes it."""
    *heard, end = told
    trades, reports = [one for one in heard if "trade" in one], [one for one in heard if "report" in one]
    assert [one["trade"] for one in trades] == list(range(1, len(trades) + 1))
    said = [
        f"{one['buy']} buys {one['quantity']} @{one['price']} of {one['sell']}"
        + " own" * one.get("own", False)
        + f" {one['symbol']}" * (one["symbol"] != "X")
        for one in trades
    ]
    said += sorted(f"{one['report']} {one['id']} {one['detail']}" for one in reports)
    for name, book in end["book"]["symbols"].items():
        said.append(f"{name} {book['phase']} {book['reference'] or '-'}")
        for side in ("buy", "sell"):
            said += [f"{side} {number} {left}" + f" @{price}" * bool(price) for number, price, left in book[side]]
        said += [f"stop {number} {side} {left} trigger={trigger}" for number, side, trigger, left in book["stops"]]
    return said + [f"{kind} {number} {left}" for kind in ("lot", "offer") for number, left in end["book"][f"{kind}s"]]


@pytest.mark.parametrize("floor", [Floor, FastFloor], ids=["readable", "fast"])
@pytest.mark.parametrize("name", cases())
def test_where_two_rules_meet(name: str, floor: type[Floor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "Floor", floor)
    events, expected = cases()[name]
    told = FloorLines()
    heard = [line for one in events for line in told.read(json.dumps(event_of(one)))]
    assert said_of([*heard, *told.end()]) == expected
