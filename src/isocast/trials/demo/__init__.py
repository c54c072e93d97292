"""The demo: a whole market on one machine for people to look at, staged, fed, disturbed, watched and judged.

It shows only what the processes' journals and status pages say, as another machine could. Drawing is done in `cli`.
"""
