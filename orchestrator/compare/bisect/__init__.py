"""Find the commit, or the version of a package, at which a training became slower (`tunebench bisect`).

`candidates` chooses the next probe. `evidence` compares a probe with both ends, which are measured in the same rounds. `search` is
the whole search, and needs only a function that measures. These three are pure.

`carry_out` starts the search. `runs` makes the rounds. A `checkout` makes a candidate ready to run: `commits` from a git
`repository`, or `versions` of a package.
"""
