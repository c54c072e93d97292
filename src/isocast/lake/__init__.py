"""The tape and the network's own measurements as tables, by Spark: sources, tables, pipeline, audit, fairness.

It reads journals, or asks a retransmit server through `runtime`'s client. It takes part in no ring, and a market never
waits for it.
"""
