"""The keys of a market file, in one table: for reading, for `isocast config keys` and for the reference page.

A market is one TOML file: a few keys at its top, a table for each concern, and a table `[nodes.NAME]` for each process
(`node_keys`).
"""

from __future__ import annotations

from isocast.ring.settings import OrderRule, StartPolicy
from isocast.runtime.market.coverage_keys import COVERAGE_TABLE
from isocast.runtime.market.edge_keys import EDGE_TABLE
from isocast.runtime.market.model import PORT_BLOCK, ClockSource, DelayModel, Durability, NetworkMode
from isocast.runtime.market.table_keys import MAX_PORT, Key, Kind, Table
from isocast.terms.profiles import PROFILES
from isocast.terms.timing import Gate
from isocast.wire.limits import JUMBO_MTU, MAX_MESSAGES_PER_TOKEN, MAX_STRIPE, STANDARD_MTU

__all__ = ["MAX_PORT", "SETTINGS", "Key", "Kind", "Table"]

_DAY_NS = 86_400 * 10**9


def _time(name: str, explanation: str, otherwise: str, minimum: int = 1) -> Key:
    return Key(name, Kind.TIME, explanation, otherwise=otherwise, minimum=minimum, maximum=_DAY_NS)


_TOP = Table(
    "",
    "At the top of the file, before the first table.",
    (
        Key("name", Kind.TEXT, "What the market is called, in views, logs and metrics.", "market"),
        Key(
            "data",
            Kind.TEXT,
            "Directory of journals, logs and outboxes, one below it for each node; a relative one counts from"
            " the file's own directory.",
            "data",
        ),
        Key(
            "keys", Kind.TEXT, "Directory of the key files that `isocast keys init` makes; relative as `data`.", "keys"
        ),
        Key(
            "seal",
            Kind.FLAG,
            "Whether payloads are sealed from source to release. Without it every node of the network can read the"
            " future; for experiments only.",
            default=True,
        ),
        Key(
            "durability",
            Kind.CHOICE,
            "What a write survives before anything that rests on it is sent. power: on the disk, so that it survives a"
            " power cut; costs a wait for the disk, once for each token and each burst of a source. process: handed to"
            " the kernel, so that it survives kill -9; after a power cut every receiver and reformation server of that"
            " machine has forgotten what it promised and must come back under a new number: for demos and tests.",
            "power",
            choices=tuple(Durability),
        ),
    ),
)

_TIMING = Table(
    "timing",
    "The profile gives δ_N, P, k_r, ε and δ_S; every other time follows by its formula (§5.1). What is given here goes"
    " before both, if it is not shorter than the formula allows.",
    (
        Key("profile", Kind.CHOICE, "Which set of times to start from.", "world", choices=tuple(PROFILES)),
        _time("detect", "δ_N: a token later than this is taken for lost. At least 2ε.", "the profile's"),
        _time("transmit", "X: to transmit a request and its answer.", "the profile's", minimum=0),
        _time(
            "process",
            "P: to process a request and its answer; an owner whose timer runs later than this stays silent.",
            "the profile's",
            minimum=0,
        ),
        Key(
            "retries_max",
            Kind.COUNT,
            "k_r: requests before a receiver gives up.",
            otherwise="the profile's",
            minimum=1,
            maximum=1_000,
        ),
        _time("retry", "τ_r: between two requests.", "2δ_N+X+P"),
        _time("token_period", "τ_t: between two tokens.", "δ_N+2ε+k_r·τ_r"),
        _time(
            "release_delay",
            "Δ_A: between a token's instant and the release of its messages.",
            "(k_p-1)·τ_t+δ_N+2ε+k_r·τ_r, and what the gate and lower layers add",
        ),
        Key(
            "gate",
            Kind.CHOICE,
            "What a release waits for besides its instant: receipts of a majority, nothing, the next L tokens, or"
            " a whole cycle. Under `timed` a partition can make sites diverge.",
            "majority",
            choices=tuple(Gate),
        ),
        Key("next_tokens", Kind.COUNT, 'L of `gate = "next"`.', 1, minimum=1, maximum=1_000),
        Key(
            "nack_sets",
            Kind.COUNT,
            "k_p: sets of receivers that take turns in asking (§5.2), at most one less than primary receivers.",
            1,
            minimum=1,
            maximum=255,
        ),
        _time(
            "secondary_detect",
            "δ_S: detection between a secondary receiver and its parent.",
            "the profile's, with secondary receivers",
        ),
        _time("secondary_retry", "τ_{r,S}: between two requests of a secondary receiver.", "2δ_S+X+P"),
    ),
)

_RING = Table(
    "ring",
    "What all members of a ring agree on. Each stripe has a ring of its own, of the same receivers.",
    (
        Key(
            "stripes",
            Kind.COUNTS,
            "Stripes of the core (§4.4), ascending. Every node is one process in each of them: NAME in the first,"
            " NAME.s1 in stripe 1, each with addresses, groups and directories of its own.",
            (0,),
            minimum=0,
            maximum=MAX_STRIPE,
        ),
        Key(
            "stripe_plan",
            Kind.TEXT,
            "The stripe plan whose core stripes say where a symbol travels, if it is not that of `[edge]`; relative as"
            " `data`. Without either, symbols are split by a hash of their names.",
            "",
        ),
        Key(
            "order",
            Kind.CHOICE,
            "Messages inside a token as its owner got them, or shuffled by a key that no site chooses (§7.2).",
            "arrival",
            choices=tuple(OrderRule),
        ),
        Key(
            "window",
            Kind.COUNT,
            "W: the most messages that a source may have sent and not yet seen acknowledged. Sources size their windows"
            " themselves, by what tokens acknowledge; receivers drop what is further ahead.",
            4_096,
            minimum=1,
            maximum=MAX_MESSAGES_PER_TOKEN,
        ),
        Key(
            "batch_max",
            Kind.COUNT,
            "K_max: messages that one token acknowledges at most.",
            16_384,
            minimum=1,
            maximum=MAX_MESSAGES_PER_TOKEN,
        ),
        Key(
            "release_rate",
            Kind.COUNT,
            "Pacing of a large batch, in packets per millisecond; 0 releases a token's messages all at once.",
            0,
            maximum=1_000_000,
        ),
        Key(
            "policy",
            Kind.CHOICE,
            "Whose votes start a ring: a majority of the primary receivers, or any once a majority has been missing for"
            " `start_wait`. Without a majority, `majority` orders nothing; `availability` goes on, marks what it"
            " releases as uncertified, and can release two messages under one number on two sides of a partition"
            " (§4.3).",
            "majority",
            choices=tuple(StartPolicy),
        ),
        _time(
            "start_wait",
            "How long `availability` waits for a majority before it starts a ring without one.",
            "twice a reformation, 2·(4δ_N+grace+τ_t+2ε)",
        ),
    ),
)

_NETWORK = Table(
    "network",
    "How packets travel. Every process reads the same file, so that all agree on the groups.",
    (
        Key(
            "mode",
            Kind.CHOICE,
            "Multicast, or the same groups by unicast to each member, for clouds without multicast.",
            "multicast",
            choices=tuple(NetworkMode),
        ),
        Key(
            "groups",
            Kind.ADDRESS,
            "Where the core's groups begin: data of stripe i is this + 2i, control the next.",
            "239.255.77.0",
        ),
        Key(
            "lines",
            Kind.ADDRESS,
            "Where the lines begin: that of site n in stripe i is this + n + i · `stripe_groups`.",
            "239.255.78.0",
        ),
        Key(
            "repairs",
            Kind.ADDRESS,
            "Where the retransmit servers' lines begin, numbered in the same way.",
            "239.255.79.0",
        ),
        Key(
            "stripe_groups",
            Kind.COUNT,
            "Addresses from the lines of one stripe to those of the next.",
            1_024,
            minimum=1,
            maximum=1 << 20,
        ),
        Key(
            "stripe_ports",
            Kind.COUNT,
            "Ports of a node in stripe i are this · i above those in its table, unless the stripe has a table"
            " [nodes.NAME.si] with other ones.",
            100,
            minimum=PORT_BLOCK,
            maximum=10_000,
        ),
        Key("port", Kind.COUNT, "UDP port of all groups.", 7700, minimum=1, maximum=MAX_PORT),
        Key("ttl", Kind.COUNT, "Routers that a multicast packet may pass, plus one.", 1, minimum=1, maximum=255),
        Key(
            "source_specific",
            Kind.FLAG,
            "Join groups for the addresses of their senders only; the network drops everybody else's packets.",
            default=False,
        ),
        Key(
            "mtu",
            Kind.COUNT,
            "Bytes of an IP packet that every link carries; payloads are as large as fits.",
            STANDARD_MTU,
            minimum=STANDARD_MTU,
            maximum=JUMBO_MTU,
        ),
        Key(
            "receive_buffer",
            Kind.SIZE,
            "What each socket asks the kernel for; the kernel's own limit is net.core.rmem_max.",
            "4MiB",
            minimum=64 << 10,
            maximum=1 << 30,
        ),
    ),
)

_CLOCK = Table(
    "clock",
    "Releases are as simultaneous as the clocks: two sites are at most 2ε apart.",
    (
        Key(
            "bound",
            Kind.TIME,
            "ε: no clock of the market is further than this from true time. A clock that proves to be stops its node's"
            " releases.",
            otherwise="the profile's",
            minimum=0,
            maximum=_DAY_NS,
        ),
        Key(
            "source",
            Kind.CHOICE,
            "Whether the kernel's own estimate is watched while the kernel is synchronised (while it is not, that is"
            " shown, and `bound` counts), or `bound` counts always.",
            "kernel",
            choices=tuple(ClockSource),
        ),
        Key(
            "realtime",
            Kind.FLAG,
            "Ask for a real-time priority, for timers that are seldom late; where it is not allowed, go on without.",
            default=True,
        ),
    ),
)

_JOURNAL = Table(
    "journal",
    "What a trusted receiver released, on its disk. Retention never removes the segment in use.",
    (
        Key(
            "segment_bytes",
            Kind.SIZE,
            "A new segment begins when one has this size.",
            "64MiB",
            minimum=64 << 10,
            maximum=1 << 40,
        ),
        Key(
            "keep_bytes",
            Kind.SIZE,
            "The oldest segments go when all together are larger; 0B keeps them.",
            "0B",
            maximum=1 << 60,
        ),
        Key(
            "keep_time",
            Kind.TIME,
            "Segments older than this go; 0s keeps them.",
            "0s",
            maximum=36_500 * _DAY_NS,
        ),
    ),
)

_LOG = Table(
    "log",
    "The protocol's own log of a receiver: what it must not forget, and what others that were away may ask it for.",
    (
        Key(
            "segment_bytes",
            Kind.SIZE,
            "A new segment begins when one has this size.",
            "64MiB",
            minimum=4 << 10,
            maximum=1 << 40,
        ),
        Key(
            "keep_bytes",
            Kind.SIZE,
            "The oldest segments go when all together are larger and nothing in them is needed here. A site that was"
            " away for longer takes a checkpoint over and fills its journal from other archives.",
            "512MiB",
            minimum=4 << 10,
            maximum=1 << 60,
        ),
    ),
)

_MEASUREMENTS = Table(
    "measurements",
    "What each node writes down of its network, second by second, for `isocast lake fairness`.",
    (
        Key(
            "keep_bytes",
            Kind.SIZE,
            "Of one node; the oldest go, and 0B writes nothing. A day takes some 30 MiB.",
            "32MiB",
            maximum=1 << 40,
        ),
    ),
)

_IMPAIRMENT = Table(
    "impairment",
    "Loss and delay that the transport injects, so that one machine looks like a world. Refused unless every address is"
    " a loopback address.",
    (
        Key("enabled", Kind.FLAG, "Whether anything is injected.", default=False),
        Key("loss", Kind.SHARE, "Share of packets lost, for each destination alone.", 0.0),
        Key("jitter", Kind.TIME, "Mean of an exponential delay on top.", "0s", maximum=60 * 10**9),
        Key(
            "delay",
            Kind.CHOICE,
            "Between two nodes: great-circle distance of their places at 200 km per ms, or none.",
            "cities",
            choices=tuple(DelayModel),
        ),
        Key("seed", Kind.COUNT, "What the draws are a function of.", 1),
    ),
)

SETTINGS: tuple[Table, ...] = (
    _TOP,
    _TIMING,
    _RING,
    _NETWORK,
    _CLOCK,
    _JOURNAL,
    _LOG,
    EDGE_TABLE,
    COVERAGE_TABLE,
    _MEASUREMENTS,
    _IMPAIRMENT,
)
"""Every table but those of the nodes (`node_keys`), in the order of the reference page."""
