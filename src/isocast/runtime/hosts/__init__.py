"""Each role of Figure 2 as a process: its machine, its disk and its doors, on the driver that all share.

A host performs effects and feeds inputs. It holds no rule of the protocol; a choice that could be tested by an input,
an instant and the exact effects belongs to a machine.
"""
