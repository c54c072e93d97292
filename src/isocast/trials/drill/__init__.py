"""Fault drills: a real market on loopback under load, one fault at a time, and what its journals and logs prove."""
