"""Other people's formats, bytes to events and back: ITCH 5.0, captures, tables, LOBSTER, DBN; synthetic days.

Chunks of bytes go in; blocks of `wire.events.EVENT_DTYPE` come out in the feed's own order, with a `FeedLog` of what
was read, skipped and wrong. It is pure: `runtime.client.feed_files` opens files. It knows nothing of the network.
"""
