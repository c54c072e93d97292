"""The unified ticker of §7.1: a tape is a function of the released sequence, and of nothing else.

`tape.Tape` takes blocks of events in sequence order, `views` says what it knows, `digest` whether two are the same.
"""
