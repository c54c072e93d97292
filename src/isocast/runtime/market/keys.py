"""The keys of a market file, in one table: for reading, for `isocast config keys` and for the reference page.

A market is one TOML file: a few keys at its top, a table for each concern, and a table `[nodes.NAME]` for each process
(`NODE_TABLE`).
"""

from __future__ import annotations

from isocast.ring.settings import OrderRule, StartPolicy
from isocast.runtime.market.floors import FLOOR_TABLE, GATEWAY_TABLE, SYMBOL_TABLE
from isocast.runtime.market.model import (
    PORT_BLOCK,
    ClockSource,
    DelayModel,
    Durability,
    GuestTable,
    Impairment,
    JournalSettings,
    NetworkMode,
    NodeRole,
    Reveal,
    SocketFilter,
    StoreSettings,
    TlsMode,
)
from isocast.terms.instants import SECOND
from isocast.terms.market import Grade
from isocast.terms.quantities import duration_text, size_text
from isocast.terms.timing import PROFILES, Gate
from isocast.terms.toml_files import Key, Kind, Table
from isocast.wire.limits import JUMBO_MTU, MAX_MESSAGES_PER_TOKEN, MAX_STRIPE, STANDARD_MTU

__all__ = [
    "FILE_TABLES",
    "GROUP_PORT",
    "MAX_PORT",
    "NARROW_PORT",
    "NODE_PORT",
    "NODE_TABLE",
    "SETTINGS",
    "SLOT_MAX",
    "STRIPE_KEYS",
]

MAX_PORT = 65_535
GROUP_PORT = 7_700
NARROW_PORT = 26_477
NODE_PORT = 7_710
SLOT_MAX = 199
"""Enough markets for one machine; with it the ports of groups stay in 7,700 to 7,899."""
_DAY_NS = 86_400 * SECOND
_GUEST = GuestTable()

_COVERAGE = Table(
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
            maximum=10 * SECOND,
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
            " its former receiver still sends in it.",
            "30s",
            minimum=SECOND,
            maximum=86_400 * SECOND,
        ),
        Key(
            "drain_everywhere",
            Kind.FLAG,
            "Whether a group that rests is withheld from all receivers, however far away.",
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

_EDGE = Table(
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
            Kind.GROUP,
            "Where the groups begin: narrow stripe n of site s is this + s · `span` + n.",
            "239.192.0.0",
        ),
        Key(
            "proofs",
            Kind.GROUP,
            "Where the groups of proofs begin, in the same way: what a receiver signs of its stripes goes there.",
            "239.208.0.0",
        ),
        Key(
            "repairs",
            Kind.GROUP,
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
        Key(
            "port",
            Kind.COUNT,
            "UDP port of all these groups.",
            otherwise=f"{NARROW_PORT} + `network.slot`",
            minimum=1,
            maximum=MAX_PORT,
        ),
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
            " an attacker who forges a sender's address could direct the answers at that sender.",
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
            Kind.PROBABILITY,
            "Bit-rate of a stripe's repairs, as a share of the stripe's own. A complete customer needs a line for"
            " both.",
            0.25,
        ),
        Key(
            "repair_window",
            Kind.TIME,
            "How long a retransmit server gathers requests for the same before it multicasts the repair once.",
            "20ms",
            maximum=10 * SECOND,
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
            "The earliest time after the release at which a packet leaves. By then every receiver's edge has made it,"
            " so that all send it together.",
            "20ms",
            maximum=10 * SECOND,
        ),
        Key(
            "introduce",
            Kind.TIME,
            "Stocks are introduced with their first message of a day, and again after so long, for late customers.",
            "60s",
            minimum=SECOND,
            maximum=_DAY_NS,
        ),
        Key(
            "prove_every",
            Kind.TIME,
            "How often a receiver signs its stripes, but at most once for each token. Packets wait at customers for the"
            " signature, so that a longer span saves bytes and costs time.",
            "1s",
            maximum=60 * SECOND,
        ),
        Key(
            "seal",
            Kind.CHOICE,
            "Whether stripes are sealed. never: in the clear for any MoldUDP64 decoder, whatever was sold. sold: in a"
            " market that sells (`[subscriptions]`), each under the key of its service `stripe:N`.",
            "never",
            choices=("sold", "never"),
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
            "reveal",
            Kind.CHOICE,
            "Who opens sealed payloads. seal: receivers, which have the keys and are trusted to wait for the release."
            " chain: nobody before the source itself discloses the key, which it does when a majority holds the message"
            " in its order; releases come `timing.reveal_tokens` tokens later, and a message whose key is not"
            " acknowledged by then is void. For tickers; for orders a withheld key would be a free option.",
            "seal",
            choices=tuple(Reveal),
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
        Key(
            "dumpable",
            Kind.FLAG,
            "Let debuggers and core dumps see the memory of nodes, which holds keys; to find faults only.",
            default=False,
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
            "P: to process a request and its answer; a token owner stays silent if its timer fires later than this.",
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
            "reveal_tokens",
            Kind.COUNT,
            'V of `reveal = "chain"`: tokens within which a source\'s key must be acknowledged; each adds τ_t to Δ_A.',
            2,
            minimum=1,
            maximum=64,
        ),
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
        Key(
            "slot",
            Kind.COUNT,
            "Which of the markets of a machine this is: no two share one. It is added to `port` and `edge.port` where"
            " they are not given, and is the third number of loopback addresses. `isocast config example` takes one"
            " that is free.",
            0,
            maximum=SLOT_MAX,
        ),
        Key(
            "port",
            Kind.COUNT,
            "UDP port of all groups.",
            otherwise=f"{GROUP_PORT} + `slot`",
            minimum=1,
            maximum=MAX_PORT,
        ),
        Key("ttl", Kind.COUNT, "Routers that a multicast packet may pass, plus one.", 1, minimum=1, maximum=255),
        Key(
            "source_specific",
            Kind.FLAG,
            "Join groups for the addresses of their senders only; the network drops packets of all other senders.",
            default=False,
        ),
        Key(
            "filter",
            Kind.CHOICE,
            "What the kernel judges of a datagram before a process sees it. addresses: whether its sender may speak"
            " there, and whether it is a frame of this market and stripe. frames: the second alone, for networks that"
            " translate addresses. A kernel that refuses is told in the log, and the node judges by itself.",
            "addresses",
            choices=tuple(SocketFilter),
        ),
        Key(
            "tls",
            Kind.CHOICE,
            "Which doors and status pages speak TLS 1.3, with the certificates that `isocast certs` makes. auto: those"
            " whose address is not loopback; such pages ask for a token as well.",
            "auto",
            choices=tuple(TlsMode),
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

_JOURNAL_USUAL, _LOG_USUAL, _UNIMPAIRED = JournalSettings(), StoreSettings(), Impairment()
"""Their defaults hold for journals and stores that have no market file, too."""

_JOURNAL = Table(
    "journal",
    "What a trusted receiver released, on its disk. Retention never removes the segment in use.",
    (
        Key(
            "segment_bytes",
            Kind.SIZE,
            "A new segment begins when one has this size.",
            size_text(_JOURNAL_USUAL.segment_bytes),
            minimum=64 << 10,
            maximum=1 << 40,
        ),
        Key(
            "keep_bytes",
            Kind.SIZE,
            "The oldest segments go when all together are larger; 0B keeps them.",
            size_text(_JOURNAL_USUAL.keep_bytes),
            maximum=1 << 60,
        ),
        Key(
            "keep_time",
            Kind.TIME,
            "Segments older than this go; 0s keeps them.",
            duration_text(_JOURNAL_USUAL.keep_seconds * SECOND),
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
            size_text(_LOG_USUAL.segment_bytes),
            minimum=4 << 10,
            maximum=1 << 40,
        ),
        Key(
            "keep_bytes",
            Kind.SIZE,
            "The oldest segments go when all together are larger and nothing in them is needed here. A site that was"
            " away for longer takes a checkpoint over and fills its journal from other archives.",
            size_text(_LOG_USUAL.keep_bytes),
            minimum=4 << 10,
            maximum=1 << 60,
        ),
    ),
)

_GUESTS = Table(
    "guests",
    "Listeners that have no table here: whoever holds the edge key hears the lines, and fetches what it missed at the"
    " doors of retransmit servers and receivers, within a share that belongs to its address and key.",
    (
        Key("allowed", Kind.FLAG, "Whether doors let them in. If not, every listener needs a seat.", default=True),
        Key(
            "share",
            Kind.COUNT,
            "Messages a second that one address gets at a door with one key, however many listeners it has.",
            _GUEST.share,
            minimum=1,
            maximum=1_000_000,
        ),
        Key(
            "total",
            Kind.COUNT,
            "Messages a second that all guests of a door get together; those who have a seat do not wait for them.",
            _GUEST.total,
            minimum=1,
            maximum=1_000_000,
        ),
        Key(
            "most",
            Kind.COUNT,
            "Guests that are connected to a door at once; one address has at most a third of the places.",
            _GUEST.most,
            minimum=1,
            maximum=255,
        ),
    ),
)

_SECURITY = Table(
    "security",
    "Who is who (§6): every node but a customer has an identity of its own, and a roster that the market's root signed"
    " says whose is which. `isocast keys init` makes both.",
    (
        Key(
            "signatures",
            Kind.FLAG,
            "Whether nodes sign what they say, and believe nobody who does not. Without it whoever has the core key"
            " can speak for every node; for experiments only.",
            default=True,
        ),
        Key(
            "receipts",
            Kind.CHOICE,
            "Whether RECEIPTs are signed too. Each member verifies one of every other member for each token, at 125 µs:"
            " `auto` signs them while that is at most 5 % of a token's period, and always with `reveal` = chain.",
            "auto",
            choices=("auto", "always", "never"),
        ),
        Key(
            "doors",
            Kind.CHOICE,
            "What both sides of a door prove: `identity`, the key of the door and the identity that the roster lists;"
            " `key`, its key alone, as versions before did. All nodes and publishers of a market have the same: there"
            " is no falling back. Without `signatures` it is the key alone.",
            "identity",
            choices=("identity", "key"),
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
        Key("enabled", Kind.FLAG, "Whether anything is injected.", default=_UNIMPAIRED.enabled),
        Key("loss", Kind.PROBABILITY, "Share of packets lost, for each destination alone.", _UNIMPAIRED.loss),
        Key(
            "jitter",
            Kind.TIME,
            "Mean of an exponential delay on top.",
            duration_text(_UNIMPAIRED.jitter_ns),
            maximum=60 * SECOND,
        ),
        Key(
            "delay",
            Kind.CHOICE,
            "Between two nodes: great-circle distance of their places at 200 km per ms, or none.",
            _UNIMPAIRED.delay,
            choices=tuple(DelayModel),
        ),
        Key("seed", Kind.COUNT, "What the draws are a function of.", _UNIMPAIRED.seed),
    ),
)

_SUBSCRIPTIONS = Table(
    "subscriptions",
    "Whether what the lines carry is sold (§6): then receivers and retransmit servers seal it, and whoever listens"
    " needs a package of the box office for the period. Without this everybody who has the edge key reads everything.",
    (
        Key("enabled", Kind.FLAG, "Whether lines are sealed and doors give what was bought alone.", default=False),
        Key(
            "period",
            Kind.TIME,
            "How long one key counts: period n covers n·P to (n+1)·P of the tokens' instants, since 1970. The shorter,"
            " the less a key that was passed on is worth.",
            "24h",
            minimum=60 * SECOND,
            maximum=366 * _DAY_NS,
        ),
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
    _EDGE,
    _COVERAGE,
    _GUESTS,
    _SECURITY,
    _SUBSCRIPTIONS,
    _MEASUREMENTS,
    _IMPAIRMENT,
)
"""Every table but those of the nodes (`NODE_TABLE`), in the order of the reference page."""

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
        Key("role", Kind.CHOICE, "Its part in Figure 2.", required=True, choices=tuple(NodeRole)),
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
        Key("latitude", Kind.NUMBER, "Degrees north.", otherwise="the city's", minimum=-90, maximum=90, unit="degrees"),
        Key(
            "longitude", Kind.NUMBER, "Degrees east.", otherwise="the city's", minimum=-180, maximum=180, unit="degrees"
        ),
        Key(
            "address",
            Kind.ADDRESS,
            "Where others reach it, and its interface for multicast.",
            otherwise="on loopback: 127.1.0.1, 127.1.0.2, … for receivers, 127.2.… for sources, 127.3.… for reformation"
            " servers, 127.4.… for others, by number; the third number is `network.slot`",
        ),
        Key(
            "port",
            Kind.COUNT,
            "The first of four UDP ports: direct, and control, data and line of the fan-out mode.",
            NODE_PORT,
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

FILE_TABLES: tuple[Table, ...] = (*SETTINGS, NODE_TABLE, FLOOR_TABLE, GATEWAY_TABLE, SYMBOL_TABLE)
"""Everything that a market file may say, in the order of the reference page."""
