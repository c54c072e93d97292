"""Logs of receivers that keep little: until nothing is left of what they hold now."""

from tests.interop.stage import Stage

__all__ = ["SHORT", "until_rolled"]

SHORT = {"segment_bytes": "12KiB", "keep_bytes": "24KiB"}
"""Two segments of a few tokens each, and never fewer than sixteen tokens."""


def _segments(stage: Stage, name: str) -> list[int]:
    """The numbers of a receiver's log segments."""
    folder = stage.market.directory_of(name) / "log"
    return sorted([int(path.stem.rpartition("-")[2]) for path in folder.glob("segment-*.log")])


def until_rolled(stage: Stage, *names: str) -> None:
    """Until nothing is left of what these logs hold now."""
    newest = {name: _segments(stage, name)[-1] for name in names}
    stage.until(lambda: all(_segments(stage, name)[0] > newest[name] for name in names), "the logs have rolled on")
