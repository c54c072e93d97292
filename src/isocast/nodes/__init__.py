"""The roles of Figure 2 that compose several machines, one file each; simulator and real network drive them alike.

A role that is one machine is that machine: `ring.source.PrimarySource`, `hierarchy.forwarding.SecondarySource`,
`hierarchy.customer.Customer`, `reformation.server.ReformationServer`. No clock, socket, file or thread from here down.
"""
