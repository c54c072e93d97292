"""Isocast: one sequence of market messages, released everywhere at the same instant."""

__version__ = "0.1.0"
