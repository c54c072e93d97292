"""Spark reads journals, archives and files of feeds, and publishes: `format("isocast")`, `format("isocast-feed")`."""
