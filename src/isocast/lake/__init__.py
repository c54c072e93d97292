"""The tape and the network's own measurements as tables, by Spark: sources, sinks, transforms and the pipeline."""
