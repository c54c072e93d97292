"""Where Spark finds `format("isocast-feed")` by itself: one package for each format."""

from isocast.lake.feed_source import IsocastFeedSource as DefaultSource

__all__ = ["DefaultSource"]
