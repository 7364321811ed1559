"""Write a comparison for people and programs: on a terminal, as an HTML page, Markdown, JSON and CSV.

The functions turn a `Comparison` into text. They judge nothing and print nothing. `as_json` also reads its own text. `files` writes
texts to the requested files.
"""
