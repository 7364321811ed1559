"""The base of the pydantic models of the YAML files."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A mapping in a YAML file. Unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
