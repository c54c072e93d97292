"""The protocol machines of §2.1 (original) and §5 (timed)."""
