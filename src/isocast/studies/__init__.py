"""What combines the rooms below into an answer: how a planet is covered."""
