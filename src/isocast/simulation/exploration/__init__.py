"""A model checker over the product's own machines: every interleaving of a small market (protocol §5, last part)."""
