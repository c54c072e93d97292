"""§4.3: servers propose, members vote (protocol §5)."""
