"""Entry: of traders who react to the same news, who is first, and how far from an even chance each pair of cities is.

One stream of orders is replayed under every rule, so that rules differ and nothing else does. It runs no machine; the
shuffle is that of `terms.entry`, and journals of a market are judged by the same figures.
"""
