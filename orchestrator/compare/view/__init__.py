"""Write a comparison for people and programs: on a terminal, as an HTML page, Markdown, JSON and CSV.

The functions turn a `Comparison` into text. They judge nothing and print nothing. `as_json` can also read the text that it wrote.
`files` writes texts to the requested files.
"""
