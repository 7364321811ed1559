"""`expand` makes experiments, each with its id, from a suite, a selection and a machine.

`expansion` expands one scenario. `plan` joins the experiments of all chosen scenarios.
"""

from orchestrator.plan.expand.plan import Plan, expand, has_id

__all__ = ["Plan", "expand", "has_id"]
