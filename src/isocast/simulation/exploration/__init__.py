"""A model checker over the product's own machines: every interleaving of a small market (protocol §5, last part).

It enumerates and judges; it has no model of its own that could differ from the product.
"""
