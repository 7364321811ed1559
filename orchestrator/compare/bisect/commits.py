"""Make commits of a user's repository ready to run: a worktree for each commit, and the chosen experiment in it.

The scenario file, its defaults and its framework configurations are those of the user's working tree, for all commits. Paths in the
scenario file, such as that of a script, are searched in the worktree. So the commit's own files run. Data and an interpreter that
the scenario file names are exceptions: they come from the user's working tree, because git often does not have them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.compare.bisect.checkout import Candidate, NotBuilt
from orchestrator.compare.bisect.chosen import Chosen
from orchestrator.compare.bisect.folder import WORKTREES
from orchestrator.compare.bisect.repository import Repository
from orchestrator.errors import LaunchError, SelectionError
from orchestrator.files.reading import resolved
from orchestrator.records import Experiment


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
    noun: str = "commit"

    def experiment(self, place: int) -> Experiment:
        """Check a commit out, and return its experiment. Raise NotBuilt if the experiment cannot run there."""
        folder = self._worktree(place)
        try:
            if not folder.exists():
                self.repository.add_worktree(folder, self.candidates[place].name)
        except LaunchError as error:
            raise NotBuilt(f"it cannot be checked out: {error}") from error
        suite = self.chosen.suite
        return self.chosen.at(replace(suite, document=replace(suite.document, file=folder / self.file)))

    def release(self, place: int) -> None:
        if self._worktree(place).exists():
            self.repository.remove_worktree(self._worktree(place))

    def searched(self) -> dict[str, str]:
        """Return what a bisection of these commits searches. The content of the user's files does not count: it may change."""
        good, bad = self.candidates[0].name, self.candidates[-1].name
        root = str(self.repository.root)
        return {"repository": root, "good": good, "bad": bad, "experiment": self.chosen.identity}

    def close(self, *, keep: Collection[int] = ()) -> None:
        """Remove all worktrees of this bisection, also those that an interrupted call left behind.

        A killed call may leave a run that goes on. Its worktree stays if its place is in `keep`.
        """
        keys = {one.key for place, one in enumerate(self.candidates) if place not in keep}
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
    known = [repository.commit(word, option=option) for word, option in ((good, "--good"), (bad, "--bad"))]
    if known[0] == known[1]:
        raise SelectionError(f"--good and --bad name the same commit {known[0]}; name two commits")
    if not repository.is_ancestor(*known):
        cure = "exchange the two" if repository.is_ancestor(*reversed(known)) else "name two commits of one branch"
        raise SelectionError(f"--good {good} is not an ancestor of --bad {bad}; {cure}")
    return repository.between(*known)
