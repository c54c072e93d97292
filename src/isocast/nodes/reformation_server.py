"""A reformation server, X_R (§4.3)."""

from __future__ import annotations

from isocast.reformation.server import ReformationServer, ServerSnapshot, ServerState

__all__ = ["ReformationServer", "ServerSnapshot", "ServerState"]
