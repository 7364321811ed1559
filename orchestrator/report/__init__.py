"""One campaign for people and other tools: page, tables, highlights, export and bundle."""
