"""`isocast drill`: named faults against a real market on this machine, and what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import Flag

__all__ = ["drill"]

_EXAMPLES = """Examples:

    isocast drill --list

    isocast drill token-site partition

    isocast drill --json > drills.json

    isocast drill partition --policy availability --keep /tmp/parted

Exit code: 0 every drill passed, 1 one did not. A drill passes if nothing is lost, repeated or different in any
journal, and the market is whole again. The time from ballot to first new token stands beside its bound; on a shared
machine it is a measurement, and no reason to fail.
"""

drill = App(name="drill", help_epilogue=_EXAMPLES)


@drill.default
def _drill(
    *names: str,
    list_: Annotated[bool, Parameter(name="--list", negative="")] = False,
    policy: Literal["majority", "availability"] = "majority",
    profile: Literal["quick", "lan", "continent", "world", "ci"] = "quick",
    seconds: Annotated[float | None, Parameter(validator=Number(gte=1, lte=600))] = None,
    keep: Path | None = None,
    json: Flag = False,
) -> int:
    """Run faults against a real market on this machine: 13 processes, UDP multicast on loopback, no privilege.

    Each drill founds a market of its own, publishes at two sources all the time, does its fault, waits until the market
    is whole again, and then reads every journal: what is lost, repeated, different. Logs say how long detection and
    reformation took, journals how long nothing was released.

    Parameters
    ----------
    names
        Which drills, in the order of the list; all if none is named.
    list_
        Say which drills there are, and what each does.
    policy
        Whose votes start a ring: a majority's, or any, which may diverge, and the drills show it.
    profile
        The times of the ring; `quick` is `lan` with more time for processes that wait for a core.
    seconds
        How long faults stay that do not end by themselves; without it as long as each drill says.
    keep
        Leave the markets, with their files, journals and logs, in this new directory; without it nothing is left.
    json
        Print a list with one JSON object for each drill, and nothing else.
    """
    from isocast.cli.drill_run import DrillOptions, list_drills, run_drills
    from isocast.ring.settings import StartPolicy
    from isocast.trials.drill.cast import DrillSettings

    if list_:
        return list_drills(as_json=json)
    settings = DrillSettings(profile, StartPolicy(policy), seconds)
    return run_drills(DrillOptions(names, settings, keep, as_json=json))
