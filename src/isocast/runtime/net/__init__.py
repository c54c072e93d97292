"""Sockets, groups, the clock, the one timer, doors. Knows packets and bytes, and no rule of the protocol."""
