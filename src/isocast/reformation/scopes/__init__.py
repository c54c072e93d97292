"""§4.3: who remulticasts how far, and on which address (protocol §7)."""
