"""The things that tests need, made with few words: experiments and records, run folders, tables, comparisons, suites, campaigns."""
