"""Spark reads journals, archives and feed files, and publishes: `format("isocast")` and `format("isocast-feed")`.

It turns blocks into Arrow batches without parsing event by event. It transforms nothing and owns no table.
"""
