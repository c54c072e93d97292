"""Many processes and planned changes of a running market: supervisor, operator's door, ring changes, orderly ends.

It asks nodes to drain, leave, join or restart, and waits until they did. The ring itself decides whether a change
takes place.
"""
