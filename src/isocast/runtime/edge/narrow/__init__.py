"""Narrow stripes on the real network (§4.4): receivers send them, servers repair them, customers choose among them.

What is in a packet is decided by `striping`, alike everywhere; here are only the sockets, the plan's changes and the
repairs.
"""
