"""Where Spark finds `format("isocast-feed")` by itself: one package for each format."""

from isocast.lake.source.feed import IsocastFeedSource as DefaultSource

__all__ = ["DefaultSource"]
