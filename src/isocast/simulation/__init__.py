"""The market in virtual time: the same machines as on the real network, under faults of every kind and one seed.

It owns the virtual clock and network, faults, scenario files, swarm and mutants. It never imports `runtime`, and a run
is a function of its scenario and seed alone.
"""
