"""Make versions of a package ready to run: the experiment's software environment, with this one requirement replaced."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from orchestrator.compare.bisect.checkout import Candidate
from orchestrator.compare.bisect.chosen import Chosen
from orchestrator.errors import LaunchError, SelectionError
from orchestrator.machine import process
from orchestrator.machine.environments import sources
from orchestrator.records import EnvironmentRequest, Experiment

_ASK_S = 120.0
_SHOWN = 20
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+)")


@dataclass(kw_only=True)
class Versions:
    """The versions of a package from a good one to a bad one. `request` is that of the user's scenario file."""

    package: str
    request: EnvironmentRequest
    chosen: Chosen
    candidates: Sequence[Candidate]
    noun: str = "version"

    def experiment(self, place: int) -> Experiment:
        """Build the environment with a version, and return its experiment. Raise NotBuilt if this is impossible."""
        suite, version = self.chosen.suite, self.candidates[place].name.partition("==")[2]
        lines = with_version(self.request.requirements, self.package, version)
        changed = {**suite.environments.requests, self.request.name: replace(self.request, requirements=lines)}
        return self.chosen.at(replace(suite, environments=replace(suite.environments, requests=changed)))

    def release(self, place: int) -> None:
        """Do nothing: the environment is in the cache, and other campaigns may use it, too."""

    def close(self, *, keep: Collection[int] = ()) -> None:
        """Do nothing."""

    def searched(self) -> dict[str, str]:
        """Return what a bisection of these versions searches."""
        good, bad = self.candidates[0].name, self.candidates[-1].name
        return {"good": good, "bad": bad, "experiment": self.chosen.identity}


def versions(words: tuple[str, str], chosen: Chosen) -> Versions:
    """Return the versions from good to bad, which `words` name, such as `torch==2.11`."""
    found = [_NAMED.fullmatch(word) for word in words]
    names = {canonicalize_name(match[1]) for match in found if match}
    if len(names) != 1 or not all(found):
        raise SelectionError(
            f"--good {words[0]} and --bad {words[1]} are not two versions of one package; write them like torch==2.11 and "
            "torch==2.13, or name two commits"
        )
    request, package = chosen.request, names.pop()
    if request is None or not with_version(request.requirements, package, "0"):
        place = f"environment {request.name!r}" if request else f"{chosen.suite.document.file}: {chosen.experiment.id}"
        raise SelectionError(
            f"{place} has no requirement {package} to replace; give the scenario an environment: whose requirements name {package}"
        )
    ends = _version(words[0]), _version(words[1])
    between = versions_between(_listed(package, request), *ends)
    candidates = tuple(
        Candidate(key=f"{package}-{version}", name=f"{package}=={version}", title="", date="") for version in between
    )
    return Versions(package=package, request=request, chosen=chosen, candidates=candidates)


def _version(word: str) -> Version:
    try:
        return Version(word.partition("==")[2])
    except InvalidVersion:
        raise SelectionError(f"{word} has no valid version; write it like torch==2.11") from None


def with_version(requirements: Sequence[str], package: str, version: str) -> tuple[str, ...]:
    """Return requirements with this version of a package. Return nothing if no requirement names the package."""
    lines = []
    is_found = False
    for line in requirements:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:  # a path
            lines.append(line)
            continue
        if canonicalize_name(requirement.name) == package:
            extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
            marker = f"; {requirement.marker}" if requirement.marker else ""
            line, is_found = f"{requirement.name}{extras}=={version}{marker}", True
        lines.append(line)
    return tuple(lines) if is_found else ()


def versions_between(listed: Sequence[str], good: Version, bad: Version) -> list[str]:
    """Return the listed versions from good to bad, oldest first. Raise SelectionError if one of the two is not listed."""
    known = sorted({Version(text) for text in listed})
    public = [Version(one.public) for one in known]
    for option, version in (("--good", good), ("--bad", bad)):
        if version not in public and version not in known:
            newest = [str(one) for one in reversed(known)]
            shown = ", ".join(newest[:_SHOWN]) + (f", … {newest[-1]}" if len(newest) > _SHOWN else "")
            raise SelectionError(f"{option}: there is no version {version}; the package sources have {shown}")
    if good >= bad:
        raise SelectionError(f"--good {good} is not older than --bad {bad}; exchange the two")
    return [str(one) for one, plain in zip(known, public, strict=True) if good <= plain and plain <= bad]


def _listed(package: str, request: EnvironmentRequest) -> list[str]:
    """Return the versions of a package that the environment's package sources have. Pre-releases are left out."""
    variables = sources.for_pip(request, sources.pip_settings(), Path(os.devnull))
    try:
        words = [sys.executable, "-P", "-m", "pip", "index", "versions", package]
        output = process.capture(words, _ASK_S, variables)
    except LaunchError as error:
        raise SelectionError(
            f"the versions of {package} are unknown: {error}; check the environment's index: and find_links:"
        ) from error
    line = next((line for line in output.splitlines() if line.startswith("Available versions:")), "")
    return [text.strip() for text in line.partition(":")[2].split(",") if text.strip()]
