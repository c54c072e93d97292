"""The keys of a node's table in a market file."""

from __future__ import annotations

from isocast.runtime.market.keys import MAX_PORT, Key, Kind, Table
from isocast.runtime.market.model import PORT_BLOCK, Grade, NodeRole
from isocast.terms.instants import SECOND
from isocast.wire.limits import MAX_STRIPE

__all__ = ["NODE_TABLE", "STRIPE_KEYS"]

_MAX_NUMBER = 65_535
"""Of a node among its kind: the sites' share of the ids, and enough of the others."""

_R_P, _R_S = NodeRole.PRIMARY_RECEIVER, NodeRole.SECONDARY_RECEIVER
_S_S, _R_X, _CUSTOMER = NodeRole.SECONDARY_SOURCE, NodeRole.RETRANSMIT_SERVER, NodeRole.CUSTOMER

NODE_TABLE = Table(
    "nodes.NAME",
    "One table for each node: a process, or one in each stripe of the core. A name has small letters, digits and"
    " hyphens, at most 32 characters, a letter first. Where its process in stripe 1 is elsewhere, a table"
    " `[nodes.NAME.s1]` says so: `address`, `port`, `http_port`, `tcp_port`.",
    (
        Key("role", Kind.CHOICE, "Its part in Figure 2.", otherwise="must be given", choices=tuple(NodeRole)),
        Key(
            "number",
            Kind.COUNT,
            "Its number among its kind (receivers; sources; reformation servers; retransmit servers and customers),"
            " and with it its id. It is what others remember a node by: write it down before a market is in use.",
            otherwise="the lowest that is free",
            minimum=1,
            maximum=_MAX_NUMBER,
        ),
        Key("city", Kind.TEXT, "Where it is: a known city by name or code, or any name beside coordinates.", ""),
        Key("latitude", Kind.DEGREES, "Degrees north.", otherwise="the city's", maximum=90),
        Key("longitude", Kind.DEGREES, "Degrees east.", otherwise="the city's", maximum=180),
        Key(
            "address",
            Kind.ADDRESS,
            "Where others reach it, and its interface for multicast.",
            otherwise="on loopback: 127.1.0.1, 127.1.0.2, … for receivers, 127.2.… for sources, 127.3.… for reformation"
            " servers, 127.4.… for others, by number",
        ),
        Key(
            "port",
            Kind.COUNT,
            "The first of four UDP ports: direct, and control, data and line of the fan-out mode.",
            7710,
            minimum=1,
            maximum=MAX_PORT - PORT_BLOCK + 1,
        ),
        Key("http_port", Kind.COUNT, "TCP port of metrics and health; 0: none.", 7780, maximum=MAX_PORT),
        Key(
            "tcp_port",
            Kind.COUNT,
            "TCP port of its door, for publishers or for ranges of the past; 0: none.",
            7790,
            maximum=MAX_PORT,
            roles=tuple(role for role in NodeRole if role.has_door),
        ),
        Key(
            "parent",
            Kind.NAME,
            "The receiver that a secondary receiver asks, itself at most in the second layer; the primary source that a"
            " secondary source sends to.",
            otherwise="must be given",
            roles=(_R_S, _S_S),
        ),
        Key(
            "backup",
            Kind.NAME,
            "Whom a secondary receiver asks when its parent is silent: a receiver of a layer above its own.",
            "",
            roles=(_R_S,),
        ),
        Key(
            "line",
            Kind.FLAG,
            "Whether it multicasts what it releases (a retransmit server: repairs) to customers.",
            default=True,
            roles=(_R_P, _R_S, _R_X),
        ),
        Key(
            "lines",
            Kind.NAMES,
            "The receivers whose lines it hears: at least one, better two or more.",
            otherwise="must be given",
            roles=(_R_X, _CUSTOMER),
        ),
        Key("retransmit", Kind.NAMES, "The retransmit servers that it asks, in this order.", (), roles=(_CUSTOMER,)),
        Key(
            "grade",
            Kind.CHOICE,
            "Every message, repaired where a line lost it; or the newest, without waiting (§4.2).",
            "complete",
            choices=tuple(Grade),
            roles=(_CUSTOMER,),
        ),
        Key(
            "start",
            Kind.FLAG,
            "Whether `isocast up` starts it. False keeps its place for `isocast listen` or a program of yours.",
            default=True,
            roles=(_CUSTOMER,),
        ),
        Key(
            "stripes",
            Kind.COUNTS,
            "The stripes of the core in which it has a process, if not in all.",
            otherwise="those of `[ring]`",
            maximum=MAX_STRIPE,
        ),
        Key(
            "clock_bound",
            Kind.TIME,
            "The bound of its own clock, if that is better than the market's.",
            otherwise="that of `[clock]`",
            minimum=0,
            maximum=SECOND,
        ),
    ),
)

STRIPE_KEYS = tuple(key for key in NODE_TABLE.keys if key.name in ("address", "port", "http_port", "tcp_port"))
"""What a table [nodes.NAME.s1] may say of the node's process in stripe 1 alone."""
