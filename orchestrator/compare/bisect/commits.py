"""Make commits of a user's repository ready to run: a worktree for each commit, and the chosen experiment in it.

The scenario file, its defaults and its framework configurations are those of the user's working tree, for all commits. Paths in the
scenario file, such as that of a script, are searched in the worktree. So the commit's own files run. Data and an interpreter that
the scenario file names are exceptions: they come from the user's working tree, because git often does not have them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.compare.bisect.checkout import Candidate, NotBuilt
from orchestrator.compare.bisect.chosen import Chosen
from orchestrator.compare.bisect.folder import WORKTREES
from orchestrator.compare.bisect.repository import Repository
from orchestrator.errors import LaunchError, SelectionError
from orchestrator.files.reading import resolved
from orchestrator.plan.config.environments import package_digest
from orchestrator.records import EnvironmentRequest, Experiment


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
        suite, root = self.chosen.suite, resolved(self.repository.root)
        requests = {name: _moved(one, root, folder) for name, one in suite.environments.requests.items()}
        return self.chosen.at(
            replace(
                suite,
                document=replace(suite.document, file=folder / self.file),
                environments=replace(suite.environments, requests=requests),
            )
        )

    def release(self, place: int) -> None:
        if self._worktree(place).exists():
            with suppress(LaunchError):  # `close` says what stays
                self.repository.remove_worktree(self._worktree(place))

    def searched(self) -> dict[str, str]:
        """Return what a bisection of these commits searches. The content of the user's files does not count: it may change."""
        good, bad = self.candidates[0].name, self.candidates[-1].name
        root = str(self.repository.root)
        return {"repository": root, "good": good, "bad": bad, "experiment": self.chosen.identity}

    def close(self, *, keep: Collection[int] = ()) -> None:
        """Remove all worktrees of this bisection, also those that an interrupted call left behind. Say which of them stay.

        A killed call may leave a run that goes on. Its worktree stays if its place is in `keep`.
        """
        keys = {one.key for place, one in enumerate(self.candidates) if place not in keep}
        for folder in self.worktrees.iterdir() if self.worktrees.is_dir() else ():
            if folder.name in keys:
                try:
                    self.repository.remove_worktree(folder)
                except LaunchError as error:
                    self.chosen.say(str(error))
        if self.worktrees.is_dir() and not any(self.worktrees.iterdir()):
            self.worktrees.rmdir()

    def _worktree(self, place: int) -> Path:
        return self.worktrees / self.candidates[place].key


def _moved(request: EnvironmentRequest, root: Path, worktree: Path) -> EnvironmentRequest:
    """Return a request with the worktree's local packages instead of those of the repository's folder `root`."""
    own = {path: resolved(Path(path)) for path in request.folders}
    moved = {path: str(worktree / place.relative_to(root)) for path, place in own.items() if place.is_relative_to(root)}

    def line(text: str) -> str:
        name, scheme, path = text.rpartition("file://")
        return f"{name}{scheme}{moved.get(path, path)}"

    kept = {path: digest for path, digest in request.folders.items() if path not in moved}
    new = {path: package_digest(Path(path)) for path in moved.values()}
    return replace(request, requirements=tuple(map(line, request.requirements)), folders={**kept, **new})


def repository(file: Path, repo: Path | None) -> Repository:
    """Return the repository in the folder `repo`, or the repository of the scenario file."""
    return Repository.of(repo or resolved(file.parent), option=f"--repo {repo}" if repo else str(file))


def folder_of(file: Path, repository: Repository) -> Path:
    """Return the folder in which the paths of a scenario file are searched.

    It is the file's own folder, or the top folder of the repository if the file is outside of the repository.
    """
    own, root = resolved(file.parent), resolved(repository.root)
    return own if own.is_relative_to(root) else root


def commits(repository: Repository, words: tuple[str, str], *, file: Path, results: Path, chosen: Chosen) -> Commits:
    """Return the commits from good to bad, which `words` name. `results` is the folder of the bisection."""
    return Commits(
        repository=repository,
        candidates=_commits_between(repository, *words),
        chosen=chosen,
        file=(folder_of(file, repository) / file.name).relative_to(resolved(repository.root)),
        worktrees=results.absolute() / WORKTREES,
    )


def _commits_between(repository: Repository, good: str, bad: str) -> tuple[Candidate, ...]:
    """Return the commits from good to bad. Raise SelectionError if bad does not follow good."""
    known = [repository.commit(word, option=option) for word, option in ((good, "--good"), (bad, "--bad"))]
    if known[0] == known[1]:
        raise SelectionError(f"--good and --bad name the same commit {known[0]}; name two commits")
    if not repository.is_ancestor(*known):
        cure = "exchange the two" if repository.is_ancestor(*reversed(known)) else "name two commits of one branch"
        raise SelectionError(f"--good {good} is not an ancestor of --bad {bad}; {cure}")
    return repository.between(*known)
