"""structlog without what it would draw with: it takes rich, and pygments with it, for tracebacks that nobody asks for.

These are 66 modules, some 5 MB and a third of the time in which a command starts. Commands and nodes call this first.
A library does not: while it lasts, nobody else in the process can import rich.
"""

from __future__ import annotations

import sys

__all__ = ["import_structlog"]


def import_structlog() -> None:
    """Import structlog without rich; code that draws imports rich afterwards."""
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401, PLC0415
    finally:
        del sys.modules["rich"]
