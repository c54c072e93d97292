"""Figure 2: one file per role, composed of the protocol's machines. Simulator and real network drive these alike."""
