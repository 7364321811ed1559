"""`expand` makes experiments, each with its id, from a suite and a selection. Pure: the machine is an argument.

`expansion` expands one scenario. `plan` joins the experiments of all chosen scenarios.
"""

from orchestrator.plan.expand.plan import Plan, expand

__all__ = ["Plan", "expand"]
