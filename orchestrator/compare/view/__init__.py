"""Write a comparison for people and programs: on a terminal, as Markdown, JSON and CSV.

Functions from a `Comparison` to text; they judge nothing and print nothing. `as_json` reads its own text back, `files` writes
texts to the requested files.
"""
