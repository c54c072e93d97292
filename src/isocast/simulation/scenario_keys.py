"""The keys of a scenario file, in one table: for validation, for `isocast sim keys` and for the reference page.

A file is flat TOML: every key at the top level, times in seconds, and a `[[faults]]` table for each fault
(`FAULT_KEYS`).
"""

from __future__ import annotations

from isocast.terms.toml_files import Key, Kind, Table
from isocast.wire.limits import MAX_MESSAGES_PER_TOKEN, MAX_NEXT_NUMBERS, MAX_RING, SEAL_BYTES, STANDARD_PAYLOAD

__all__ = [
    "EDGE_KEYS",
    "FAULT_KEYS",
    "FAULT_KINDS",
    "FAULT_TABLE",
    "KEYS",
    "KEYS_BY_NAME",
    "LAYERS_MAX",
    "LAYER_KEYS",
    "MAX_RUN_SECONDS",
]


MAX_RUN_SECONDS = 1_000_000_000
"""For a whole run: some 31 years. Bounds: a quarter of what an instant of 62 bits can hold."""
_MAX_COUNT = 1_000_000_000


# The keys of a scenario file that speak of secondary receivers (§4.1).


LAYERS_MAX = 3
"""Bounds: two suffice for ten thousand receivers (§4.1)."""
_STALL_MAX = 100_000
"""Bounds: a day of tokens at one a second."""

LAYER_KEYS: tuple[Key, ...] = (
    Key(
        "secondaries",
        Kind.COUNT,
        "Secondary receivers below each receiver that is not in the lowest layer. They are numbered after the primary"
        " ones: first the children of site 1, then those of site 2, and so on.",
        0,
        symbol="R_S",
        section="§4.1",
        maximum=MAX_RING,
    ),
    Key(
        "layers",
        Kind.COUNT,
        "Layers of receivers, the primary ring included: 2 or 3.",
        otherwise="2 with `secondaries`",
        section="§4.1",
        minimum=2,
        maximum=LAYERS_MAX,
    ),
    Key(
        "secondary_delay",
        Kind.SECONDS,
        "Delay between a secondary receiver and its parent; to other nodes the parent's delay is added.",
        0.005,
        section="§4.1",
    ),
    Key(
        "secondary_detect",
        Kind.SECONDS,
        "How much later than a primary receiver a secondary one takes a token for lost.",
        otherwise="δ_N",
        symbol="δ_S",
        section="§4.1",
    ),
    Key(
        "secondary_retry",
        Kind.SECONDS,
        "Between two requests of a secondary receiver to its parent. At least the default.",
        otherwise="2δ_S+X+P",
        symbol="τ_{r,S}",
        section="§4.1",
        minimum=1,
    ),
    Key(
        "stall_tokens",
        Kind.COUNT,
        "Tokens after which a secondary receiver whose secondary token is overdue no longer holds memory up.",
        64,
        symbol="G",
        section="§4.1",
        minimum=1,
        maximum=_STALL_MAX,
    ),
)
"""In the order of the reference page."""


# The keys of a scenario file that speak of the edge of the network (§4.1, §4.2, §4.4).


_EDGE_MAX = 500
"""Bounds: each node of the edge takes part in every message."""
_STRIPES_MAX = 8
"""Bounds: the plan of a simulated market names seven symbols."""
_STRIPE_BYTES_MIN = 200
"""Fits: a packet of 48 bytes with an introduction of 97, and a heartbeat of 48."""

EDGE_KEYS: tuple[Key, ...] = (
    Key(
        "archives",
        Kind.COUNT,
        "Retransmit servers. Each hears the lines of two receivers, archive 1 those of the first two sites, and keeps"
        " everything that was released.",
        0,
        symbol="R_x",
        section="§4.1",
        maximum=_EDGE_MAX,
    ),
    Key(
        "customers",
        Kind.COUNT,
        "Customers of grade complete. Each hears the lines of two receivers, customer 1 those of the last two sites,"
        " and asks the archives. In turn they begin with the first message, with what comes next, and with a snapshot.",
        0,
        symbol="R",
        section="§4.1",
        maximum=_EDGE_MAX,
    ),
    Key(
        "latest_customers",
        Kind.COUNT,
        "Customers of grade latest, numbered after the complete ones. They want the newest event of each symbol.",
        0,
        symbol="R",
        section="§4.1, §7.1",
        maximum=_EDGE_MAX,
    ),
    Key(
        "secondary_sources",
        Kind.COUNT,
        "Secondary sources, numbered after the others: the first forwards to source1, the second to source2, and so on."
        " Clients bring each of them a tenth of `messages`, on top of those.",
        0,
        symbol="S_S",
        section="§4.2",
        maximum=_EDGE_MAX,
    ),
    Key(
        "stripe_senders",
        Kind.COUNT,
        "Receivers whose narrow stripes are sent, each by a process of its own: sender 1 follows the journal of site 1,"
        " and so on. Messages are then trades and statuses.",
        0,
        section="§4.4",
        maximum=_EDGE_MAX,
    ),
    Key(
        "narrow_customers",
        Kind.COUNT,
        "Customers of narrow stripes. Each hears all stripes of two senders, customer 1 those of the first two. In turn"
        " they ask senders for what they lack, and go on without it.",
        0,
        section="§4.4",
        maximum=_EDGE_MAX,
    ),
    Key(
        "narrow_stripes",
        Kind.COUNT,
        "Narrow stripes of each sender, the spare one included.",
        3,
        section="§4.4",
        minimum=2,
        maximum=_STRIPES_MAX,
    ),
    Key(
        "stripe_bytes",
        Kind.COUNT,
        "IP bytes of a narrow stripe in any token period; prices are conflated where that is too little.",
        400,
        section="§4.4",
        minimum=_STRIPE_BYTES_MIN,
        maximum=_MAX_COUNT,
    ),
    Key(
        "forgers",
        Kind.COUNT,
        "Customers, the first so many, that send in the names of those whose lines they hear. With `signatures` the"
        " others take nothing of it.",
        0,
        section="§6",
        maximum=_EDGE_MAX,
    ),
    Key(
        "narrow_forgers",
        Kind.COUNT,
        "Customers of narrow stripes, the last so many, that send in the names of the senders whose stripes they hear:"
        " false packets, heartbeats, ends of sessions and proofs. With `signatures` the others take nothing of it.",
        0,
        section="§6",
        maximum=_EDGE_MAX,
    ),
)
"""In the order of the reference page."""


_MAX_MESSAGES = 10**12
"""Bounds: a year at 30,000 a second."""
_MAX_SERVERS = 16
"""Bounds: more reformation servers than anybody needs for a race of ballots."""

_WHAT = (
    Key(
        "title",
        Kind.TEXT,
        "A line that says what the run shows; printed above its report.",
        "",
    ),
    Key(
        "seed",
        Kind.COUNT,
        "The one number that a run is a function of; `--seed` goes before it.",
        1,
        maximum=2**63 - 1,
    ),
    Key(
        "protocol",
        Kind.CHOICE,
        "The periodic token of §5, or the original event-driven protocol of §2.1, the paper's baseline.",
        "timed",
        section="§2.1, §5",
        choices=("timed", "original"),
    ),
    Key(
        "receivers",
        Kind.COUNT,
        "Primary receivers on the ring, at least 2.",
        otherwise="10, or as many as `ring` names",
        symbol="m",
        section="§2.1",
        minimum=1,
        maximum=MAX_RING,
    ),
    Key(
        "messages",
        Kind.COUNT,
        "How many messages are submitted in all. With `traders`, two for each pair.",
        otherwise="10000; arrival_rate·duration with `duration`; 200000 with `traders`",
        minimum=1,
        maximum=_MAX_MESSAGES,
    ),
    Key(
        "duration",
        Kind.SECONDS,
        "No message is submitted later than this; what was submitted is still delivered.",
        otherwise="until all messages are submitted",
        minimum=1,
    ),
)

_ARRIVALS = (
    Key(
        "arrival_rate",
        Kind.NUMBER,
        "Messages per second of all sources together, as a Poisson process.",
        otherwise="10; original: 1",
        symbol="λ",
        section="§5.1",
        positive=True,
        maximum=_MAX_COUNT,
    ),
    Key(
        "messages_per_token",
        Kind.COUNT,
        "Instead of arrival_rate: k messages spread evenly over each token period (λ = k/τ_t, no chance in it).",
        otherwise="unset",
        symbol="k",
        section="§5.1",
        minimum=1,
        maximum=MAX_MESSAGES_PER_TOKEN,
    ),
    Key(
        "sources",
        Kind.COUNT,
        "How many sources take turns; half of them at each trader's city with `traders`. The fewer, the more messages"
        " a lost one holds back; the more, the longer the token. 0 (original only): each message comes from a source"
        " of its own.",
        otherwise="λ·τ_t, from 10 to 64; 4·λ·τ_t, from 10 to 1000, with `traders`; original: 0",
        symbol="n",
        section="§2.1",
        maximum=MAX_NEXT_NUMBERS,
    ),
    Key(
        "burst",
        Kind.COUNT,
        "Messages that a source submits together; the arrival rate still counts messages.",
        1,
        minimum=1,
        maximum=MAX_MESSAGES_PER_TOKEN,
    ),
    Key(
        "payload_bytes",
        Kind.COUNT,
        "Size of a message's payload: two market events of 48 bytes by default.",
        96,
        minimum=1,
        maximum=STANDARD_PAYLOAD - SEAL_BYTES,
    ),
)

_NETWORK = (
    Key(
        "one_way_delay",
        Kind.SECONDS,
        "Delay between any two nodes. With cities it is derived: great-circle distance at 200 km per ms.",
        0.05,
        symbol="d",
        section="§5.1",
    ),
    Key(
        "jitter",
        Kind.SECONDS,
        "Mean of an exponential delay on top of the pair's own; it reorders packets.",
        otherwise="0; 0.02 with `exchange`",
        section="§5.1",
    ),
    Key(
        "loss",
        Kind.PROBABILITY,
        "Share of packets that a destination loses.",
        0,
        symbol="p",
        section="§5.1",
    ),
    Key(
        "loss_model",
        Kind.CHOICE,
        "Losses independent for each packet and destination, or on the branches of a multicast tree, where one loss"
        " hits every receiver behind it.",
        "independent",
        section="§5.2",
        choices=("independent", "tree"),
    ),
    Key(
        "tree_branches",
        Kind.COUNT,
        'Branches of the tree of `loss_model = "tree"`; neighbours on the ring share one.',
        otherwise="√m, rounded",
        section="§5.2",
        minimum=1,
        maximum=MAX_RING,
    ),
    Key(
        "edge_loss",
        Kind.PROBABILITY,
        "The same for packets to and from archives, customers and senders of narrow stripes, where it is more.",
        0,
        section="§4.1",
    ),
    Key(
        "duplicate",
        Kind.PROBABILITY,
        "Share of packets that arrive twice.",
        0,
    ),
    Key(
        "bandwidth",
        Kind.NUMBER,
        "Bits per second of each node's uplink; 0 means no limit.",
        0,
        section="§5.1",
        maximum=10**15,
    ),
)

_TIMES = (
    Key(
        "detect",
        Kind.SECONDS,
        "A token later than this is taken for lost. At least 2·clock_error.",
        0.375,
        symbol="δ_N",
        section="§5.1",
        minimum=1,
    ),
    Key(
        "transmit",
        Kind.SECONDS,
        "Time to transmit a request and its answer.",
        0,
        symbol="X",
        section="§5.1",
    ),
    Key(
        "process",
        Kind.SECONDS,
        "Time to process a request and its answer.",
        0.05,
        symbol="P",
        section="§5.1",
    ),
    Key(
        "retry",
        Kind.SECONDS,
        "Between two requests for what is missing. At least the default.",
        otherwise="2δ_N+X+P = 0.8",
        symbol="τ_r",
        section="§5.1",
        minimum=1,
    ),
    Key(
        "retries_max",
        Kind.COUNT,
        "Requests before a receiver gives up.",
        3,
        symbol="k_r",
        section="§5.1",
        minimum=1,
        maximum=1_000,
    ),
    Key(
        "token_period",
        Kind.SECONDS,
        "Between two tokens. At least the default, so that only one token is ever in recovery.",
        otherwise="δ_N+2ε+k_r·τ_r = 2.775",
        symbol="τ_t",
        section="§5.1",
        minimum=1,
    ),
    Key(
        "release_delay",
        Kind.SECONDS,
        "Between a token's instant and the release of its messages. At least the default.",
        otherwise="(k_p-1)·τ_t+δ_N+2ε+k_r·τ_r, and what the gate adds",
        symbol="Δ_A",
        section="§5.1",
        minimum=1,
    ),
    Key(
        "clock_error",
        Kind.SECONDS,
        "No clock is further than this from true time.",
        0,
        symbol="ε",
        section="§5",
    ),
    Key(
        "drift_ppm",
        Kind.COUNT,
        "Speed at which a clock's error wanders within ±ε, in parts per million; 0 means a constant error.",
        0,
        maximum=100_000,
    ),
    Key(
        "wake_lateness",
        Kind.SECONDS,
        "Mean of an exponential delay between the instant of a timer and the step of the site that set it.",
        0,
    ),
)

_RULES = (
    Key(
        "gate",
        Kind.CHOICE,
        "What a release waits for, besides its instant: nothing (the paper), receipts of a majority, the next L"
        " tokens, or a whole cycle. A real market's default is majority.",
        "timed",
        section="§5.1",
        choices=("timed", "majority", "next", "total"),
    ),
    Key(
        "next_tokens",
        Kind.COUNT,
        'Tokens that must follow under `gate = "next"`.',
        1,
        symbol="L",
        section="§2.1",
        minimum=1,
        maximum=1_000,
    ),
    Key(
        "policy",
        Kind.CHOICE,
        "Whose votes start a ring: a majority of U, or any once a majority has been missing for start_wait; such a ring"
        " is marked uncertified, and may diverge.",
        "majority",
        section="§4.3",
        choices=("majority", "availability"),
    ),
    Key(
        "start_wait",
        Kind.SECONDS,
        "How long `availability` waits for a majority.",
        otherwise="two reformations",
        section="§4.3",
        minimum=1,
    ),
    Key(
        "order_in_token",
        Kind.CHOICE,
        "Messages inside a token in the order in which its owner got them, or shuffled by a key that no site chooses.",
        "arrival",
        section="§7.2",
        choices=("arrival", "shuffle"),
    ),
    Key(
        "reveal",
        Kind.CHOICE,
        "Who opens messages: whoever has the keys (seal; messages are in the clear here), or nobody before their source"
        " discloses the keys, which it does when a majority has receipted the token (chain).",
        "seal",
        section="§6",
        choices=("seal", "chain"),
    ),
    Key(
        "reveal_tokens",
        Kind.COUNT,
        'Tokens within which a key must be acknowledged, or its messages are void, under `reveal = "chain"`.',
        2,
        symbol="V",
        section="§6",
        minimum=1,
        maximum=64,
    ),
    Key(
        "signatures",
        Kind.CHOICE,
        "Whether tokens, ballots, votes and rings are signed by their senders, and receipts too; without signatures any"
        " member could speak in another's name.",
        "off",
        section="§6",
        choices=("off", "on", "receipts"),
    ),
    Key(
        "floor",
        Kind.FLAG,
        "Whether the receivers are a trading floor: messages are orders, every receiver applies them, arbitrates, and"
        " reports its tokens through a source of its own.",
        False,  # noqa: FBT003
        section="§7.3",
    ),
    Key(
        "nack_sets",
        Kind.COUNT,
        "Sets of receivers that take turns in asking for what is missing; 1 lets all receivers ask at once, as the"
        " paper advises. At most receivers-1.",
        1,
        symbol="k_p",
        section="§5.2",
        minimum=1,
        maximum=MAX_RING,
    ),
    Key(
        "window",
        Kind.COUNT,
        "Messages that a source may have submitted and not yet acknowledged.",
        otherwise="4·λ·τ_t messages shared by the sources, at least 64",
        symbol="W",
        section="§2.1",
        minimum=1,
        maximum=MAX_MESSAGES_PER_TOKEN,
    ),
    Key(
        "batch_max",
        Kind.COUNT,
        "Messages that one token acknowledges at most; the backlog is bounded only if λ·τ_t is less.",
        MAX_MESSAGES_PER_TOKEN,
        symbol="K_max",
        section="§5.1",
        minimum=1,
        maximum=MAX_MESSAGES_PER_TOKEN,
    ),
    Key(
        "retain_tokens",
        Kind.COUNT,
        "Tokens that a receiver's disk keeps; a receiver that was away for longer fetches a checkpoint.",
        128,
        section="§4.3",
        minimum=2,
        maximum=_MAX_COUNT,
    ),
    Key(
        "release_rate",
        Kind.COUNT,
        "Pacing of a large batch, in packets per millisecond; 0 releases a token's messages all at once.",
        0,
        section="§5",
        maximum=1_000_000,
    ),
    Key(
        "servers",
        Kind.COUNT,
        "Reformation servers.",
        2,
        symbol="X_R",
        section="§4.3",
        minimum=1,
        maximum=_MAX_SERVERS,
    ),
)

_ORIGINAL = (
    Key(
        "token_ack",
        Kind.SECONDS,
        "Original: an idle token site confirms the token after this. Less than token_resend.",
        1,
        symbol="T_a",
        section="§2.1",
        minimum=1,
    ),
    Key(
        "token_resend",
        Kind.SECONDS,
        "Original: an unconfirmed token is passed again after this.",
        1.2,
        symbol="R_t",
        section="§2.1",
        minimum=1,
    ),
    Key(
        "source_resend",
        Kind.SECONDS,
        "Original: a source repeats an unacknowledged message after this.",
        1,
        symbol="R_s",
        section="§2.1",
        minimum=1,
    ),
    Key(
        "nack_resend",
        Kind.SECONDS,
        "Original: a receiver repeats a request after this.",
        0.25,
        symbol="R_n",
        section="§2.1",
        minimum=1,
    ),
)

_PLACES = (
    Key(
        "ring",
        Kind.CITIES,
        "Cities of the receivers in the order of the ring, by name or code; delays follow from their distances.",
        otherwise="no cities; the ten cities of the figures with `traders`",
        section="§4",
    ),
    Key(
        "traders",
        Kind.CITIES,
        "Two cities whose traders submit at the same instant, pair after pair: `first_wins` says who came first.",
        otherwise="none",
        section="§7.2",
    ),
    Key(
        "exchange",
        Kind.CITY,
        "A central exchange in this city instead of a ring: first come, first served.",
        otherwise="none",
        section="§1, §7.2",
    ),
)

KEYS: tuple[Key, ...] = _WHAT + _ARRIVALS + _NETWORK + _TIMES + _RULES + LAYER_KEYS + EDGE_KEYS + _ORIGINAL + _PLACES
"""Every key of the top level, in the order of the reference page; those of `[[faults]]` are `FAULT_KEYS`."""

KEYS_BY_NAME: dict[str, Key] = {key.name: key for key in KEYS}


# The keys of a `[[faults]]` table of a scenario file, and the kinds of faults.


FAULT_KINDS: dict[str, str] = {
    "crash": "The sites lose everything volatile. With duration or until they come back then.",
    "restart": "Sites that are down come back; sites that are up crash and come back at once.",
    "pause": "The sites stand still, as a stopped process does: packets wait for them, and their timers fire late.",
    "partition": "The groups cannot hear each other. A node in no group hears all and is heard by all.",
    "one-way": "Nothing passes from the first group to the second; the other way is open.",
    "isolate": "Each of the sites is cut off from all nodes, sources and servers included.",
    "clock-step": "The clocks of the sites jump by `step`, beyond their bound if it is large enough; they jump back"
    " at the end.",
    "clock-drift": "The clocks of the sites gain `rate`, or lose it, and leave their bound; at the end they are right.",
    "loss": "All links lose `loss` instead of what the scenario says.",
    "late": "Of all packets a share `late` is late by up to `by`: half of them arrive only then, of the others a copy.",
    "lie": "The sites reveal other nonces in their tokens than they committed to: with `order_in_token` of shuffle, an"
    " attempt to choose the order.",
    "equivocate": "The sites send one content of each of their tokens to some and another to the rest, and receipts to"
    " match: with `signatures` they convict themselves.",
    "forge": "The nodes speak in the names of others, with no key but their own: sites send tokens and receipts,"
    " servers send rings that nobody voted for.",
    "usurp": "The nodes do what only an operator may: a site takes another one out of U in its tokens, a server forces"
    " U to be two sites. With `signatures` nobody follows them.",
    "replay": "Somebody who sits at the nodes records what members sign, votes and rings included, and sends it again.",
    "roster": "A new roster gives the nodes new keys: its file is copied to all machines, and the ring puts it into"
    " force.",
    "revoke": "The first keys of the sites are revoked: they count no more wherever the word comes.",
    "stale": "The nodes get no new rosters and revocations; at the end they get all that they missed.",
    "steal": "A thief signs with the first keys of the sites, as soon as these count nowhere any more.",
    "slander": "Somebody with the group's key and no identity sends receipts for other tokens in the names of the"
    " sites.",
    "drain": "An operator wants the sites off the ring; at the end they come back.",
    "add": "New sites with unused numbers start, find the ring and are added to U, one after the other.",
    "remove": "The sites are taken out of U, one after the other, be they up or not.",
    "force": "An operator makes these sites U and drops all others: for a majority that never comes back.",
}
"""What a fault does, by its kind."""

FAULT_KEYS: tuple[Key, ...] = (
    Key(
        "kind",
        Kind.CHOICE,
        "What happens.",
        required=True,
        choices=tuple(FAULT_KINDS),
    ),
    Key(
        "at",
        Kind.SECONDS,
        "When it begins, after the start of the run.",
        required=True,
    ),
    Key(
        "duration",
        Kind.SECONDS,
        "How long it lasts.",
        otherwise="for ever",
        minimum=1,
    ),
    Key(
        "until",
        Kind.SECONDS,
        "When it ends: instead of duration.",
        otherwise="for ever",
        minimum=1,
    ),
    Key(
        "sites",
        Kind.NODES,
        "Who is hit: cities of `ring`, their secondaries as London/1, numbers from 1 on, or names such as site3,"
        " server1, source2, archive1, customer1, sender1, narrow1.",
        otherwise="required by crash, restart, pause, isolate, clock-step, clock-drift, lie, equivocate, forge, usurp,"
        " replay, roster, revoke, stale, steal, slander, drain, add, remove and force",
    ),
    Key(
        "groups",
        Kind.GROUPS,
        "Two or more lists of nodes (one-way: from, to), none in two of them.",
        otherwise="required by partition and one-way",
    ),
    Key(
        "step",
        Kind.SIGNED_SECONDS,
        "How far the clocks jump.",
        otherwise="required by clock-step",
    ),
    Key(
        "rate",
        Kind.SIGNED_SECONDS,
        "Seconds that the clocks gain in every second; at most 0.05, either way.",
        otherwise="required by clock-drift",
    ),
    Key(
        "disk",
        Kind.CHOICE,
        "Whether a crashed node finds its disk again. A source without its outbox comes back as its next incarnation.",
        "kept",
        choices=("kept", "lost"),
    ),
    Key(
        "inside",
        Kind.COUNT,
        "0: the crash falls between two steps. Otherwise inside one, the first one from `at` on that writes to the"
        " disk, after so many of its effects. The node comes back `duration` after it went down.",
        0,
        maximum=100,
    ),
    Key(
        "loss",
        Kind.PROBABILITY,
        "Share of packets that a destination loses meanwhile.",
        otherwise="required by loss",
        symbol="p",
    ),
    Key(
        "late",
        Kind.PROBABILITY,
        "Share of packets that are late at a destination.",
        otherwise="required by late",
    ),
    Key(
        "by",
        Kind.SECONDS,
        "How late at most.",
        otherwise="required by late",
        minimum=1,
    ),
)
"""The keys of one `[[faults]]` table."""

FAULT_TABLE = Table("faults", "One fault.", FAULT_KEYS)
