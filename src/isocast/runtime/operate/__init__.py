"""Many processes, and planned changes of a running market: supervisor, operator's door, ring changes."""
