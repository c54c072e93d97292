"""The market in virtual time: the same machines as on the real network, under faults of every kind."""
