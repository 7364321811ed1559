"""Follow numbers over many campaigns (`tunebench history`): a series for each experiment and metric, and the steps in it.

`campaigns` reads and orders the places, `trends` makes series of them, `change_points` finds the steps. `as_…` and `trend_page`
write them, and `folder` protects foreign files.
"""
