"""The keys of `[edge]`: narrow stripes that receivers multicast in the clear, and their repairs."""

from __future__ import annotations

from isocast.runtime.market.table_keys import MAX_PORT, Key, Kind, Table

__all__ = ["EDGE_TABLE"]

_DAY_NS = 86_400 * 10**9

EDGE_TABLE = Table(
    "edge",
    "Narrow stripes (§4.4): every receiver with a line multicasts them as MoldUDP64, each within its bit-rate. Nothing"
    " of it happens without a plan.",
    (
        Key(
            "plan",
            Kind.TEXT,
            "The stripe plan to begin with, as `isocast plan stripes --out` writes it; relative as `data`. Empty: no"
            " narrow stripes.",
            "",
        ),
        Key(
            "plans",
            Kind.TEXT,
            "Directory of later plans. Every receiver needs a plan's file there before `isocast edge plan` puts it into"
            " force; relative as `data`.",
            "plans",
        ),
        Key(
            "groups",
            Kind.ADDRESS,
            "Where the groups begin: narrow stripe n of site s is this + s · `span` + n.",
            "239.192.0.0",
        ),
        Key(
            "repairs",
            Kind.ADDRESS,
            "Where the groups of repairs begin, by the number of the retransmit server in the same way.",
            "239.200.0.0",
        ),
        Key(
            "span",
            Kind.COUNT,
            "Groups of one node: more than the highest number of a narrow stripe.",
            1_024,
            minimum=2,
            maximum=65_536,
        ),
        Key("port", Kind.COUNT, "UDP port of all these groups.", 26_477, minimum=1, maximum=MAX_PORT),
        Key(
            "request_port",
            Kind.COUNT,
            "UDP port at which receivers and retransmit servers take requests for what was lost.",
            26_478,
            minimum=1,
            maximum=MAX_PORT,
        ),
        Key(
            "requests",
            Kind.FLAG,
            "Answer MoldUDP64 requests of strangers, by unicast. On loopback they are answered anyway; elsewhere"
            " whoever forges a sender's address could point the answers at him.",
            default=False,
        ),
        Key(
            "request_rate",
            Kind.COUNT,
            "Answers a second to one address.",
            50,
            minimum=1,
            maximum=1_000_000,
        ),
        Key(
            "repair_share",
            Kind.SHARE,
            "Bit-rate of a stripe's repairs, as a share of the stripe's own. A complete customer needs a line for"
            " both.",
            0.25,
        ),
        Key(
            "repair_window",
            Kind.TIME,
            "How long a retransmit server gathers requests for the same before it multicasts the repair once.",
            "20ms",
            maximum=10 * 10**9,
        ),
        Key(
            "patience",
            Kind.COUNT,
            "Token periods that a stripe may fall behind before prices are conflated.",
            4,
            maximum=1_000,
        ),
        Key(
            "delay",
            Kind.TIME,
            "How long behind the release a packet leaves at the earliest. By then every receiver's edge has made it, so"
            " that all send it together.",
            "20ms",
            maximum=10 * 10**9,
        ),
        Key(
            "introduce",
            Kind.TIME,
            "Stocks are introduced with their first message of a day, and again after so long, for whoever came later.",
            "60s",
            minimum=10**9,
            maximum=_DAY_NS,
        ),
        Key("zone", Kind.TEXT, "Where it is midnight when a session ends and the clock of ITCH starts.", "UTC"),
        Key(
            "keep_days",
            Kind.COUNT,
            "Days for which sessions are kept, and requests answered.",
            7,
            minimum=1,
            maximum=3_650,
        ),
    ),
)
