"""Sweeps: one scenario at many values of some keys, each with many seeds, by processes or by Spark.

Every run is the simulator's; here they are spread, gathered and summed up.
"""
