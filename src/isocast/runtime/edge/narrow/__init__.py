"""Narrow stripes on the real network (§4.4): receivers send them, servers repair them, customers choose."""
