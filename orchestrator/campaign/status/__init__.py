"""The state of a campaign, as read from its results folder, and views of this state."""
