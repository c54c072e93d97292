"""Other people's formats, bytes to events and back: ITCH 5.0, MoldUDP64, captures, tables of text, LOBSTER.

Everything here is pure: chunks of bytes in, blocks of `wire.events.EVENT_DTYPE` out, in the feed's own order, and a
`FeedLog` that says what was read, what was skipped and what was wrong. `runtime.feed_files` opens files.
"""
