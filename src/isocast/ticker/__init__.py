"""The consolidated tape of §7.1: last sales, best prices, status, corrections; a function of the released sequence.

`tape.Tape` takes blocks of events in sequence order, `views` tells what it knows. It never imports `ring`, has no
clock, and never raises for what a floor published: what cannot be believed is counted and named.
"""
