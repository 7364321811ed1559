"""The state of a campaign, read from its results folder, and the words for it."""
