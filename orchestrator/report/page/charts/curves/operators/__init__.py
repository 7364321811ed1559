"""Charts of the trainer `operators`: speed-ups over sizes, and rates against the roof of the card. Pure: calls in, charts out."""
