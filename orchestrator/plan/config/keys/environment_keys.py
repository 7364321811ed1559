"""The pydantic models of software environments: `environments:` of a scenario file, and the file environments.yaml.

This module has no `from __future__ import annotations`, as `scenario_keys`.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from orchestrator.plan.config.keys.model import Model
from orchestrator.plan.config.keys.value_types import Variables, Words


def _python(value: Any) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f"{value} is a number, and YAML reads 3.10 as 3.1; quote it: '3.11'")
    return value


def _entry(value: Any) -> Any:
    """Return an environment as a mapping. A list, or the name of a file, means requirements."""
    return {"requirements": value} if isinstance(value, (str, list, tuple)) else value


def _safe_name(value: dict[str, Any]) -> dict[str, Any]:
    for name in value:
        if not re.fullmatch(r"[A-Za-z0-9_][\w.+=-]{0,79}", name, re.ASCII) or name == "none":
            raise ValueError(f"{name!r} is not a name for an environment; write letters, digits and . _ = + -")
    return value


def _container(value: Any) -> Any:
    """Return a container as a mapping. A text is the image."""
    return {"image": value} if isinstance(value, str) else value


class ContainerEntry(Model):
    """A container image as a software environment."""

    image: str = Field(description="Image in a registry, or the path of a .sif file (apptainer) or .sqsh file (pyxis).")
    program: Literal["podman", "apptainer", "pyxis"] | None = Field(
        None, description="Program that starts the container. Default: the first of podman and apptainer on PATH."
    )
    interpreter: str = Field("python", description="Python interpreter in the image.")
    mounts: Words = Field((), description="More folders that the container sees: `FOLDER` or `FOLDER:PATH`.")


class EnvironmentEntry(Model):
    """A software environment: its packages, or an interpreter or a container that has them."""

    requirements: Words = Field((), description="Packages as in pip's files, or the name of such a file.")
    constraints: Words = Field((), description="Constraints as in pip's files, or the name of such a file.")
    overrides: Words = Field(
        (), description="Requirements that replace those of other packages, such as an old limit for torch. Needs uv."
    )
    lock: str | None = Field(
        None, description="File with the exact packages and their hashes, instead of requirements."
    )
    python: Annotated[str | None, BeforeValidator(_python)] = Field(
        None, description="Version such as '3.11', or the path of an interpreter. Default: Tunebench's own."
    )
    index: Words = Field((), description="Addresses of package indexes; the first replaces the default index.")
    find_links: Words = Field((), description="Folders or pages with wheels.")
    env: Variables = Field(default_factory=dict, description="Environment variables of runs; null unsets a variable.")
    interpreter: str | None = Field(None, description="Existing interpreter that is used as it is; nothing is built.")
    container: (
        Annotated[ContainerEntry, BeforeValidator(_container, json_schema_input_type=ContainerEntry | str)] | None
    ) = Field(None, description="Container image in which the runs train.")


_Entry = Annotated[EnvironmentEntry, BeforeValidator(_entry, json_schema_input_type=EnvironmentEntry | Words)]
Environments = Annotated[dict[str, _Entry], AfterValidator(_safe_name)]


class EnvironmentsFile(Model):
    """The file environments.yaml."""

    environments: Environments = Field(description="Name of a software environment → its content.")
