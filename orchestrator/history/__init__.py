"""How numbers went over many campaigns (`tunebench history`): a series an experiment and metric, and the steps in it.

`campaigns` reads the places and puts them in order, `trends` makes series of them, `change_points` finds the steps, `as_…` and
`trend_page` write them down, `folder` keeps what is written apart from what is somebody else's.
"""
