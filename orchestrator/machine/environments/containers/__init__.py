"""Containers as software environments: where a run's command starts in its image, and what the image gets from this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from orchestrator.files.cache import cache_folder
from orchestrator.files.package import WORKERS
from orchestrator.files.redaction import is_secret_name
from orchestrator.machine.child_environment import LEAKS
from orchestrator.machine.environments.containers.command import APPTAINER, PODMAN, PYXIS, Settings, wrapped
from orchestrator.machine.environments.places import Place, environments_folder
from orchestrator.records import Command, Container, Device, Environment, Experiment, Reason

# Variables of the user that a container gets besides secrets. Others are written as `env:` in a YAML file.
PASSED_ON = ("HF_*", "TRANSFORMERS_*", "NCCL_*", "SLURM_*", "*_proxy", "*_PROXY", "TMPDIR")
_CACHES = ("HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "TRANSFORMERS_CACHE")
_RESULTS_ABOVE = 3  # RESULTS/experiments/ID/runs/RUN


def in_container(
    command: Command,
    experiment: Experiment,
    *,
    run_dir: Path,
    outside: int = 0,
    environ: Mapping[str, str] = os.environ,
) -> Command:
    """Return the command of a run as it starts in the experiment's container. Without a container, return it unchanged.

    The first words of the command (`outside`) start it on each node. A plan passes an empty `environ`, so that it does not
    depend on the user's variables. Raise LaunchError if a folder cannot be mounted.
    """
    environment = experiment.environment
    if environment is None or environment.container is None:
        return command
    place, container = place_of_environment(environment), environment.container
    sees_gpus = experiment.device is Device.CUDA and command.env.get("CUDA_VISIBLE_DEVICES") != ""
    gpus = experiment.processes_per_node if sees_gpus else 0
    folders = [
        *_results_folder(run_dir),
        *_named(experiment),
        *([] if run_dir in command.cwd.parents else [command.cwd]),
    ]
    settings = settings_of(container, place, folders, image=environment.image, gpus=gpus, environ=environ)
    # Always by itself: the script that repeats the run replaces this folder by another one.
    settings = replace(settings, mounts=(*settings.mounts, f"{run_dir}:{run_dir}"))
    return wrapped(command, container.program, settings, before=outside)


def settings_of(
    container: Container,
    place: Place,
    folders: Iterable[Path],
    *,
    image: str | None,
    gpus: int = 0,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Return what a container gets from this machine. `folders` are mounted at their own paths, with Tunebench's folders."""
    inherited = {name: value for name, value in environ.items() if _is_passed_on(name)}
    hub = Path(environ.get("HF_HOME") or Path(environ.get("HOME", "/nowhere"), ".cache", "huggingface"))
    of_user = [hub, *(Path(environ[name]) for name in _CACHES if environ.get(name)), Path(tempfile.gettempdir())]
    own = [place.home, cache_folder(), *(path for path in of_user if path.is_dir())]
    same = (f"{path}:{path}" for path in _outermost([*own, *folders]))
    return Settings(
        image=word_for(container, place, image),
        home=place.home,
        mounts=tuple(dict.fromkeys((*same, f"{WORKERS}:{WORKERS}:ro", *container.mounts))),
        inherited=dict(sorted(inherited.items())),
        fixed={"HF_HOME": str(hub)} if hub.is_dir() and "HF_HOME" not in inherited else {},
        user="0:0" if os.geteuid() == 0 else None,
        gpus=gpus,
    )


def _is_passed_on(name: str) -> bool:
    """Return whether a container gets a variable of the user. Secrets are passed on, as they cannot stand in a scenario file."""
    if any(fnmatchcase(name, pattern) for pattern in LEAKS):
        return False
    return is_secret_name(name) or any(fnmatchcase(name, pattern) for pattern in PASSED_ON)


def word_for(container: Container, place: Place, image: str | None) -> str:
    """Return the word that names the image: an id or a reference for podman, else its file."""
    if container.program == PODMAN:
        return image or container.image
    return container.image if os.path.isabs(container.image) else str(image_file(container, place))


def image_file(container: Container, place: Place) -> Path:
    """Return the file of an image that Tunebench gets from a registry."""
    return place.folder / ("image.sif" if container.program == APPTAINER else "image.sqsh")


def place_of_environment(environment: Environment) -> Place:
    """Return the paths of the environment of an experiment."""
    return Place(environments_folder() / environment.request)


@lru_cache(maxsize=64)
def packages(environment: Environment) -> Mapping[str, str]:
    """Return a dict from package name to version for an image. It is empty if they are unknown."""
    built = place_of_environment(environment).built()
    return built.packages if built else {}


def problem(experiment: Experiment, *, local: bool) -> Reason | None:
    """Return the reason why this machine cannot start the experiment's container, or None."""
    container = experiment.environment.container if experiment.environment else None
    if container is None:
        return None
    if container.program == PYXIS:
        text = (
            "pyxis starts a container only through Slurm's srun; use --executor slurm, or program: podman or apptainer"
        )
        return Reason(kind="no_container_program", text=text) if local else None
    if container.program == PODMAN and experiment.num_nodes > 1:
        text = "podman's containers do not see the network cards of a cluster; use program: apptainer or pyxis"
        return Reason(kind="container_of_several_nodes", text=text)
    if shutil.which(container.program) is None:
        text = (
            f"{container.program}, which starts the container, is not on PATH; install it, or choose another program:"
        )
        return Reason(kind="no_container_program", text=text)
    return None


def _results_folder(run_dir: Path) -> Iterator[Path]:
    """Yield the results folder, which has the files that a repeat by command.sh reads. A plan does not know this folder."""
    if run_dir.parent.name == "runs":
        yield run_dir.parents[_RESULTS_ABOVE]


def _named(experiment: Experiment) -> Iterator[Path]:
    """Yield the existing files and folders that an experiment names: model, data, script, and values of its arguments."""
    words = [experiment.model, experiment.data_path, experiment.data.source if experiment.data else None]
    words += [experiment.framework.plugin_file] if experiment.framework else []
    words += [experiment.custom.folder] if experiment.custom else []
    words += [experiment.script.folder, os.path.dirname(experiment.script.path)] if experiment.script else []
    for value in experiment.arguments.values():
        words += [value] if isinstance(value, str) else value
    yield from (Path(word) for word in words if word and os.path.isabs(word) and os.path.exists(word))


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Return the paths without those inside another path. The order stays."""
    distinct = list(dict.fromkeys(paths))
    return [path for path in distinct if not any(other in path.parents for other in distinct) and path != Path("/")]
