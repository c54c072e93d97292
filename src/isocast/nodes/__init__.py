"""Figure 2: the roles that compose several machines. Simulator and real network drive these alike.

A role that is one machine is that machine: `ring.source.PrimarySource`, `hierarchy.forwarding.SecondarySource`,
`hierarchy.customer.Customer`, `reformation.server.ReformationServer`.
"""
