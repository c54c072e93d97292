"""What keeps a market's messages secret until release and everybody else out (§6)."""
