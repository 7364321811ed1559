"""The fastest of the experiments that can be compared, with few runs (`tunebench tune`).

`places` says who races against whom, and reads the speeds from the records. The rules are those of `measure/intervals/race.py`.
`rounds` asks for the runs of each round. `view` shows the races, `winners` says which is best, and `as_json` keeps the races.
"""
