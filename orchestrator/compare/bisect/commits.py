"""Make commits of a user's repository ready to run: a worktree for each commit, and the chosen experiment in it.

The scenario file, its defaults and its framework configurations are those of the user's working tree, for all commits. Paths in the
scenario file, such as that of a script, are searched in the worktree. So the commit's own files run. Data and an interpreter that
the scenario file names are exceptions: they come from the user's working tree, because git often does not have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.compare.bisect.checkout import Candidate, NotBuilt
from orchestrator.compare.bisect.folder import WORKTREES
from orchestrator.compare.bisect.repository import Repository
from orchestrator.errors import ConfigError, LaunchError, SelectionError
from orchestrator.files.reading import resolved
from orchestrator.machine.provenance import Machine, this_machine
from orchestrator.monitors import perturbing
from orchestrator.plan.config import Suite
from orchestrator.plan.data import find_local
from orchestrator.plan.expand import expand
from orchestrator.plan.identity.experiment_id import Digester
from orchestrator.plan.placement import interpreter
from orchestrator.plan.selection import Selection
from orchestrator.records import Experiment

_MOST_IDS = 10


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The one experiment of a suite that a bisection runs: the experiment in the user's working tree, and its place in the plan."""

    suite: Suite
    selection: Selection
    machine: Machine
    index: int
    experiment: Experiment

    def at(self, file: Path) -> Experiment:
        """Return the experiment as if the scenario file was this file. Raise NotBuilt if it cannot run."""
        suite = replace(self.suite, document=replace(self.suite.document, file=file))
        try:
            experiments = expand(suite, self.selection, self.machine).experiments
        except (ConfigError, SelectionError) as error:
            raise NotBuilt(str(error).splitlines()[0]) from error
        if len(experiments) <= self.index:
            raise NotBuilt(f"the scenario file has only {len(experiments)} experiments in this commit")
        experiment = experiments[self.index]
        if reason := experiment.skip or experiment.cannot_run_here:
            raise NotBuilt(reason.text)
        return experiment


def chosen(suite: Suite, selection: Selection) -> Chosen:
    """Return the only experiment that a selection chooses. Raise SelectionError if it chooses none or several."""
    suite, machine = _with_own_files(suite), this_machine()
    experiments = expand(suite, selection, machine).experiments
    if len(experiments) != 1:
        shown = ", ".join(one.id for one in experiments[:_MOST_IDS]) + (", …" if len(experiments) > _MOST_IDS else "")
        raise SelectionError(
            f"{suite.document.file}: a bisection runs one experiment, and {len(experiments)} are chosen; choose one with "
            f"--scenario or --cell: {shown}"
        )
    (experiment,) = experiments
    if reason := experiment.skip or experiment.cannot_run_here:
        raise SelectionError(f"{experiment.id} cannot run here: {reason.text}; choose another experiment with --cell")
    # Ids depend on the content of scripts, so a part of an id that chooses an experiment here may choose none in a commit.
    every = replace(selection, cells=())
    ids = [one.id for one in expand(suite, every, machine).experiments]
    return Chosen(suite=suite, selection=every, machine=machine, index=ids.index(experiment.id), experiment=experiment)


def _with_own_files(suite: Suite) -> Suite:
    """Return the suite with absolute paths of the data and of interpreters."""
    folder = suite.document.file.parent
    data = find_local(suite.data_processing.dataset_name, folder)
    named = suite.data_processing.model_copy(update={"dataset_name": str(data)}) if data else suite.data_processing
    scenarios = (one.model_copy(update={"python": interpreter(one.python, folder)}) for one in suite.scenarios)
    return replace(suite, data_processing=named, scenarios=tuple(scenarios))


@dataclass(kw_only=True)
class Commits:
    """The commits from a good one to a bad one. `worktrees` is the folder for their worktrees.

    `file` is the place of the scenario file in the repository.
    """

    repository: Repository
    candidates: Sequence[Candidate]
    chosen: Chosen
    file: Path
    worktrees: Path

    def experiment(self, place: int) -> Experiment:
        """Check a commit out, and return its experiment. Raise NotBuilt if the experiment cannot run there."""
        folder = self._worktree(place)
        try:
            if not folder.exists():
                self.repository.add_worktree(folder, self.candidates[place].name)
        except LaunchError as error:
            raise NotBuilt(f"it cannot be checked out: {error}") from error
        return self.chosen.at(folder / self.file)

    def release(self, place: int) -> None:
        if self._worktree(place).exists():
            self.repository.remove_worktree(self._worktree(place))

    def searched(self) -> dict[str, str]:
        """Return what a bisection of these commits searches. The content of the user's files does not count: it may change."""
        good, bad, experiment = self.candidates[0], self.candidates[-1], self.chosen.experiment
        digest = Digester(perturbing(experiment.monitors)).digest(replace(experiment, sources={}))
        return {
            "repository": str(self.repository.root),
            "good": good.name,
            "bad": bad.name,
            "experiment": f"{experiment.id.rpartition('-')[0]}-{digest}",
        }

    def close(self) -> None:
        """Remove all worktrees of this bisection, also those that an interrupted call left behind."""
        keys = {one.key for one in self.candidates}
        for folder in self.worktrees.iterdir() if self.worktrees.is_dir() else ():
            if folder.name in keys:
                self.repository.remove_worktree(folder)
        if self.worktrees.is_dir() and not any(self.worktrees.iterdir()):
            self.worktrees.rmdir()

    def _worktree(self, place: int) -> Path:
        return self.worktrees / self.candidates[place].key


def commits(scenarios: Path, words: tuple[str, str], *, repo: Path | None, results: Path, chosen: Chosen) -> Commits:
    """Return the commits from good to bad, which `words` name. `results` is the folder of the bisection."""
    folder = repo or resolved(scenarios).parent
    repository = Repository.of(folder, option=f"--repo {repo}" if repo else str(scenarios))
    return Commits(
        repository=repository,
        candidates=_commits_between(repository, *words),
        chosen=chosen,
        file=_place_in(repository, scenarios),
        worktrees=results.absolute() / WORKTREES,
    )


def _place_in(repository: Repository, scenarios: Path) -> Path:
    """Return the place of the scenario file in the repository. A file elsewhere counts as a file of the top folder."""
    file, root = resolved(scenarios), resolved(repository.root)
    return file.relative_to(root) if file.is_relative_to(root) else Path(file.name)


def _commits_between(repository: Repository, good: str, bad: str) -> tuple[Candidate, ...]:
    """Return the commits from good to bad. Raise SelectionError if bad does not follow good."""
    for word, option in ((good, "--good"), (bad, "--bad")):
        if "==" in word:
            cure = "name two commits, or run both versions and compare the results folders with `tunebench compare`"
            raise SelectionError(f"{option} {word}: versions of packages are not bisected yet; {cure}")
    known = [repository.commit(word, option=option) for word, option in ((good, "--good"), (bad, "--bad"))]
    if known[0] == known[1]:
        raise SelectionError(f"--good and --bad name the same commit {known[0]}; name two commits")
    if not repository.is_ancestor(*known):
        cure = "exchange the two" if repository.is_ancestor(*reversed(known)) else "name two commits of one branch"
        raise SelectionError(f"--good {good} is not an ancestor of --bad {bad}; {cure}")
    return repository.between(*known)
