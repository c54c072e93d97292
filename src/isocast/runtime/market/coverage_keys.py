"""The keys of `[coverage]`: whether, and within which bounds, reformation servers plan the receivers' lines."""

from __future__ import annotations

from isocast.runtime.market.table_keys import Key, Kind, Table

__all__ = ["COVERAGE_TABLE"]

COVERAGE_TABLE = Table(
    "coverage",
    "Scopes and addresses of the lines (§4.3): with every ring, its reformation server adjusts how far and on which"
    " group each receiver remulticasts, so that every customer hears enough of them. Receivers and customers need a"
    " place.",
    (
        Key(
            "enabled", Kind.FLAG, "Whether lines are planned. If not, each has the group of its number.", default=False
        ),
        Key("lines", Kind.COUNT, "Receivers that everybody hears.", 2, minimum=1, maximum=16),
        Key(
            "delay_max",
            Kind.TIME,
            "A scope is no wider than light in fibre and its routers take this long for.",
            "150ms",
            minimum=1,
            maximum=10 * 10**9,
        ),
        Key(
            "groups",
            Kind.ADDRESS,
            "Where the pool of groups begins; that of stripe i begins i · `addresses` later.",
            "239.224.1.0",
        ),
        Key("addresses", Kind.COUNT, "Groups of the pool, in each stripe.", 256, minimum=1, maximum=60_000),
        Key(
            "drain",
            Kind.TIME,
            "How long a group rests where it was heard before another receiver uses it there. For the first half,"
            " whoever left it is still heard in it.",
            "30s",
            minimum=10**9,
            maximum=86_400 * 10**9,
        ),
        Key(
            "drain_everywhere",
            Kind.FLAG,
            "Whether a group that rests is given to nobody at all, however far away.",
            default=False,
        ),
        Key(
            "notices",
            Kind.ADDRESS,
            "The group in which receivers say where the lines are; in stripe i this + i.",
            "239.224.0.0",
        ),
        Key(
            "km_per_hop",
            Kind.COUNT,
            "Kilometres of a scope for each router that its packets may pass: what makes a TTL of a radius.",
            250,
            minimum=1,
            maximum=20_000,
        ),
    ),
)
