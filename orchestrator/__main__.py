"""`python -m orchestrator` is the command `tunebench`."""

from orchestrator.cli import main

main()
