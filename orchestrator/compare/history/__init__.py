"""Follow numbers over many campaigns (`tunebench history`): a series for each experiment and metric, and the steps in the series.

`campaigns` reads and sorts the campaigns, `repeats` chooses the runs that count, `trends` makes the series of experiments, and
`fleet` the series of all experiments together. `findings` searches the series with `change_points`. `as_csv`, `terminal` and
`trend_page` make texts, and `files` writes them.
"""
