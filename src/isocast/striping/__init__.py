"""Stripes (§4.4): which symbol travels where, plans from a history of rates, the edge striper, cuts across stripes.

Everything here is pure, and the same at every receiver: the released sequence and a plan determine every packet of
every narrow stripe. Sending and repairing them is `runtime.edge.narrow`.
"""
