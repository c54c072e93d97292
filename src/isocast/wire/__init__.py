"""Bytes: packets, their codec, event records, and a limit on every length and count."""
