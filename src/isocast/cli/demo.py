"""`isocast demo`: a simulated world, live in the terminal."""

from __future__ import annotations

__all__ = ["demo"]


def demo() -> int:
    """Show a simulated world live: cities, token, losses, repairs, releases and their skew."""
    from isocast.cli.live import run_demo

    return run_demo()
