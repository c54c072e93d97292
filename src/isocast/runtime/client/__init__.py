"""Ways in and out for programs: publisher, listener, received batches, replay, files of feeds."""
