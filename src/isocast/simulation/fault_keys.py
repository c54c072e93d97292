"""The keys of a `[[faults]]` table of a scenario file, and the kinds of faults."""

from __future__ import annotations

from isocast.simulation.scenario_keys import Key, Kind

__all__ = ["FAULT_KEYS", "FAULT_KEYS_BY_NAME", "FAULT_KINDS"]

FAULT_KINDS: dict[str, str] = {
    "crash": "The sites lose everything volatile. With duration or until they come back then.",
    "restart": "Sites that are down come back; sites that are up crash and come back at once.",
    "pause": "The sites stand still, as a stopped process does: packets wait for them, and their timers fire late.",
    "partition": "The groups cannot hear each other. A node in no group hears all and is heard by all.",
    "one-way": "Nothing passes from the first group to the second; the other way is open.",
    "isolate": "Each of the sites is cut off from everybody, sources and servers included.",
    "clock-step": "The clocks of the sites jump by `step`, beyond their bound if it is large enough; they jump back"
    " at the end.",
    "clock-drift": "The clocks of the sites gain `rate`, or lose it, and leave their bound; at the end they are right.",
    "loss": "All links lose `loss` instead of what the scenario says.",
    "late": "Of all packets a share `late` is late by up to `by`: half of them arrive only then, of the others a copy.",
    "lie": "The sites reveal other nonces in their tokens than they committed to: with `order_in_token` of shuffle, an"
    " attempt to choose the order.",
    "drain": "An operator wants the sites off the ring; at the end they come back.",
    "add": "Sites with numbers that nobody has come to life, find the ring and are added to U, one after the other.",
    "remove": "The sites are taken out of U, one after the other, be they up or not.",
    "force": "An operator makes the sites U, whoever else there was: for a majority that never comes back.",
}
"""What a fault does, by its kind."""

FAULT_KEYS: tuple[Key, ...] = (
    Key("kind", "", Kind.CHOICE, "required", "What happens.", choices=tuple(FAULT_KINDS)),
    Key("at", "", Kind.SECONDS, "required", "When it begins, after the start of the run."),
    Key("duration", "", Kind.SECONDS, "for ever", "How long it lasts.", minimum=1),
    Key("until", "", Kind.SECONDS, "for ever", "When it ends: instead of duration.", minimum=1),
    Key(
        "sites",
        "",
        Kind.NODES,
        "required by crash, restart, pause, isolate, clock-step, clock-drift, lie, drain, add, remove and force",
        "Who is hit: cities of `ring`, their secondaries as London/1, numbers from 1 on, or names such as site3,"
        " server1, source2.",
    ),
    Key(
        "groups",
        "",
        Kind.GROUPS,
        "required by partition and one-way",
        "Two or more lists of nodes (one-way: from, to), none in two of them.",
    ),
    Key("step", "", Kind.SIGNED_SECONDS, "required by clock-step", "How far the clocks jump."),
    Key(
        "rate",
        "",
        Kind.SIGNED_SECONDS,
        "required by clock-drift",
        "Seconds that the clocks gain in every second; at most 0.05, either way.",
    ),
    Key(
        "disk",
        "",
        Kind.CHOICE,
        '"kept"',
        "Whether a crashed node finds its disk again. A source without its outbox comes back as its next incarnation.",
        choices=("kept", "lost"),
    ),
    Key(
        "inside",
        "",
        Kind.COUNT,
        "0: between two steps",
        "The crash falls inside a step: the first one from `at` on that writes to the disk, after so many of its"
        " effects. The node comes back `duration` after it went down.",
        maximum=100,
    ),
    Key("loss", "p", Kind.PROBABILITY, "required by loss", "Share of packets that a destination loses meanwhile."),
    Key("late", "", Kind.PROBABILITY, "required by late", "Share of packets that are late at a destination."),
    Key("by", "", Kind.SECONDS, "required by late", "How late at most.", minimum=1),
)
"""The keys of one `[[faults]]` table."""

FAULT_KEYS_BY_NAME: dict[str, Key] = {key.name: key for key in FAULT_KEYS}
