"""A secondary source, S_S (§4.2): trusted by a primary one, to which it hands what its region publishes."""

from __future__ import annotations

from isocast.hierarchy.forwarding import Forwarding, ForwardingSnapshot, ForwardSettings

__all__ = ["ForwardSettings", "SecondarySource", "SecondarySourceSnapshot"]

SecondarySource = Forwarding
SecondarySourceSnapshot = ForwardingSnapshot
