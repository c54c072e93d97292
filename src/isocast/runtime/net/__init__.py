"""Sockets and groups, the clock and its bound, the one timer, doors by TCP, injected loss and delay.

It moves packets and bytes and checks their tags. It knows no rule of the protocol: what a packet means is decided by a
machine, and what follows by its host.
"""
