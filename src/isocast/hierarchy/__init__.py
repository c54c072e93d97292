"""Layers (§4.1, §4.2): secondary rings, customers and their lines, what a retransmit server answers."""
