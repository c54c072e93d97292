"""The real world under the machines: sockets, clocks, disks and processes, in parts.

It performs what machines ask for and tells them what happened, and adds no rule of the protocol. It never imports
`simulation`; both drive the same `nodes`.
"""
