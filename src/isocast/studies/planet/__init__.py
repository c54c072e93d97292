"""The planet: ten thousand receivers and ten million customers, as arrays instead of machines.

It draws what machines would do in each token, region by region, and sets every figure beside its formula. It runs no
machine and sends no packet.
"""
