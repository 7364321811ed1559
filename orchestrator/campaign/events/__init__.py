"""Tell other programs about a campaign: lines of JSON, and a command of the user for a few moments."""
