"""The properties S, F and L of the protocol, watched from outside: over a simulator's trace or journals alike."""
