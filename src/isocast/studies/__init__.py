"""What combines the rooms below into an answer: coverage plans, a model of the whole planet, sweeps of scenarios.

It computes figures and compares them with formulas. It starts no market, and only `cli` imports it.
"""
