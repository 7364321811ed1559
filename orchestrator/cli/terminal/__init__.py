"""The terminal: consoles that mask secrets, the question before a long campaign, and the standard streams."""
