"""The state of a campaign, read from its results folder, and its presentation as text."""
