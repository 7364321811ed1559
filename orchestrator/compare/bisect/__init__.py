"""Find the commit at which a training became slower (`tunebench bisect`).

`candidates` chooses the next probe. `evidence` compares a probe with both ends, which are measured in the same rounds. `search` is
the whole search, and needs only a function that measures. These three are pure.
"""
