"""Fault drills: a real market on loopback under load, one fault at a time, and what its journals and logs prove.

A verdict comes from journals alone, never from what a process says of itself.
"""
