"""Follow numbers over many campaigns (`tunebench history`): a series for each experiment and metric, and the steps in the series.

`campaigns` reads and sorts the campaigns, `repeats` chooses the runs that count, `trends` makes the series of experiments, and
`fleet` the series of all experiments together. `findings` searches the series with `change_points`. `view` makes texts and
writes them.
"""
