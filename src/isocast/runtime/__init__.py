"""The real world under the machines: sockets, clocks, timers, disks, processes."""
