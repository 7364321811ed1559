"""A comparison as people and programs read it: on a terminal, as Markdown, JSON and CSV.

Functions from a `Comparison` to text; they judge nothing and print nothing. `as_json` reads its own text back, `files` puts
texts where they were asked for.
"""
