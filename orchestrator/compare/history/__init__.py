"""Follow numbers over many campaigns (`tunebench history`): a series for each experiment and metric, and the steps in the series.

`campaigns` reads and sorts the campaigns, `trends` makes series, and `change_points` finds steps. `as_csv`, `as_json`, `terminal`
and `trend_page` make texts, and `files` writes them.
"""
