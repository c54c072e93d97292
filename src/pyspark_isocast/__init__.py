"""Where Spark finds `format("isocast")` by itself: it looks for installed packages named pyspark_*."""

from isocast.lake.source.journal import IsocastSource as DefaultSource

__all__ = ["DefaultSource"]
