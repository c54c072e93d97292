"""The layers round the ring (§4.1–4.2): secondary rings, lines, customers of both grades, archives, secondary sources.

Everything here hears the ring and never votes in it: nobody in these layers can delay or change the sequence.
Machines are pure, as in `ring`; `runtime.hosts` gives them sockets and disks.
"""
