"""What combines the rooms below into an answer: coverage, who is first, a model of the planet, sweeps of scenarios.

It computes figures and compares them with formulas. It starts no market, and only `cli` imports it.
"""
