"""Write a history for people and programs: on a terminal, as an HTML page with a grid of small curves, and as CSV files.

`files` writes the texts.
"""
