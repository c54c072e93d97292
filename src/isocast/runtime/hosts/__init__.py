"""Each role of Figure 2 as a process: its machine, its disk and its doors, on the driver that all share."""
