"""Sweeps: one scenario at many values of some keys, each with many seeds."""
