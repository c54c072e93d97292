"""The list of commands: where each is, and what `isocast --help` says of it without importing any of them."""

from __future__ import annotations

import textwrap
from shutil import get_terminal_size

__all__ = ["COMMANDS", "EXAMPLES", "HELP", "overview"]

HELP = "Ordered, fair multicast for markets: one sequence, released everywhere at the same instant."
EXAMPLES = """Start with:

    isocast demo

    isocast config example --out market.toml

    isocast sim show
"""
COMMANDS = {
    "demo": (
        "demo:demo",
        (
            "Run a whole market on this machine, live: 21 processes that talk by UDP multicast on loopback, "
            "without privilege."
        ),
    ),
    "node": ("node:node", "Run one node of a market: whatever role its table gives it (Figure 2)."),
    "up": ("up:up", "Start every node of a market on this machine, watch them, and start again what dies."),
    "publish": (
        "publish:publish",
        "Publish events or opaque messages at a source of a running market: a file, or standard input as it comes.",
    ),
    "replay": (
        "replay:replay",
        "Publish files of feeds at the sources of a running market, in their own time or faster.",
    ),
    "listen": (
        "listen:listen",
        "Listen to a running market, as a guest or as one of its customers, and print its events as they are released.",
    ),
    "edge": ("edge:app", "Narrow stripes: what receivers multicast, cut to the bit-rates of lines."),
    "gateway": ("gateway:app", "Send what a market releases in formats for which decoders exist."),
    "kafka": ("kafka:app", "Feed a market from a Kafka topic, and copy what it releases to one."),
    "tape": (
        "tape:tape",
        "Show the tape: for each symbol the last sale, best bid and offer of all floors, volume and status.",
    ),
    "sim": ("sim:app", "Simulate: the protocol's own machines in virtual time, every run a function of one seed."),
    "plan": (
        "plan:app",
        "Plan a network: derived times with their formulas, scopes and addresses with their map, stripes, the planet.",
    ),
    "feed": (
        "feed:app",
        "Feeds of other people's formats: ITCH, MoldUDP64 captures, tables, LOBSTER, DBN; and synthetic days.",
    ),
    "journal": (
        "journal:app",
        "Look into journals: what a site released, when, and whether every byte of it is sound.",
    ),
    "config": ("config:app", "Describe a market: one TOML file that every process of it reads."),
    "keys": ("keys:app", "Make and check the key files of a market; rosters, rotation and revocation."),
    "floor": (
        "floor:app",
        "A trading floor as a function: its rules, cases of your own, recordings replayed, journals verified.",
    ),
    "accounts": (
        "accounts:app",
        "A gateway's accounts: money and shares of traders, every entry that changed them, and an audit.",
    ),
    "trading-gateway": (
        "trading_gateway:app",
        "Take orders of traders: reserve, publish, follow the floor, settle.",
    ),
    "exchange": (
        "exchange:app",
        "Deliver orders to an exchange in the order of the sequence, and audit what it made of it.",
    ),
    "order": ("order:app", "Buy, sell, cancel and watch at a gateway, as one trader."),
    "box-office": (
        "box_office:app",
        "Sell subscriptions to a market: plans, subscribers, orders, renewals, and packages of keys.",
    ),
    "subscribe": (
        "subscribe:subscribe",
        "Buy at a market's box office, and fetch the package of keys; without a name, list what is on sale.",
    ),
    "certs": ("certs:app", "Make, renew and show the certificates of a market's doors and pages."),
    "evidence": (
        "evidence:evidence",
        "Show the proofs of broken promises that a market's nodes keep, each verified with the roster.",
    ),
    "top": (
        "top:top",
        "Show a running market: every node with its state, epoch, token, sequence, rates, lateness, losses and alarms.",
    ),
    "doctor": (
        "doctor:doctor",
        "Check this machine: clock, multicast, buffers, timers, ports, disk, keys, and what the lab needs.",
    ),
    "ring": ("ring:app", "Who is on the ring, and planned changes of a running market."),
    "lab": (
        "lab:app",
        "A world on one machine: a network namespace for each city, with delay, jitter and loss between them.",
    ),
    "drill": (
        "drill:drill",
        "Run faults against a real market on this machine: 13 processes, UDP multicast on loopback, no privilege.",
    ),
    "fairness": (
        "fairness:app",
        "Who is first: traders who react to the same news, by city, under each rule of entry; by journals too.",
    ),
    "lake": ("lake:app", "Tables of everything that was released, by Spark: tape, quotes, bars, and what they say."),
}
"""Where each command is, and what it is for."""
_WIDTH_MAX = 100
"""Longer lines are hard to read."""


def overview() -> str:
    """What `isocast --help` says."""
    rows = {name: text for name, (_, text) in sorted(COMMANDS.items())}
    rows |= {"--help (-h)": "Display this message and exit.", "--version": "Display application version."}
    width = min(get_terminal_size().columns, _WIDTH_MAX)
    column = max(map(len, rows)) + 4
    lines = [
        textwrap.fill(text, width, initial_indent=f"  {name}".ljust(column), subsequent_indent=" " * column)
        for name, text in rows.items()
    ]
    return "\n".join(["Usage: isocast COMMAND", "", textwrap.fill(HELP, width), "", "Commands:", *lines, "", EXAMPLES])
