"""The commands of podman, apptainer and pyxis that run a program in a container. Pure.

Inside, the program has the same paths, user, network, process ids and shared memory as without a container. So Tunebench finds
its files, and ends its processes. It sees the variables of the run, and no others of the user than those that are passed on. Their
values reach the container by their names, so no secret is on a command line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.errors import LaunchError
from orchestrator.machine.child_environment import MARKER, RUN_DIR
from orchestrator.records import Command, RunFolder

PODMAN, APPTAINER, PYXIS = "podman", "apptainer", "pyxis"
PROGRAMS = (PODMAN, APPTAINER, PYXIS)
# The prefix of a variable that apptainer sets in the container, whatever the image says.
FOR_APPTAINER = "APPTAINERENV_"
# Variables that would change the program that starts the container.
_OF_PROGRAM = ("HOME", "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD")
# Variables that would lead the interpreter of the image to packages of the host.
_NO_PATHS: Mapping[str, None] = {"PYTHONPATH": None, "PYTHONHOME": None}
_STEP = ("srun", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--kill-on-bad-exit=1", "--export=ALL")
_STEP_REST = ("--mpi=none", "--cpu-bind=none")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The things that a container gets from its host.

    `image` is an id, a reference or a file. `mounts` are `HOST:PATH` or `HOST:PATH:ro`. `inherited` are the variables of the user
    that are passed on, and `fixed` are variables without secrets. `user` is the user and group of the program, for podman as root;
    None means the user who starts it. `gpus` is the number of GPUs on a node.
    """

    image: str
    home: Path
    mounts: Sequence[str] = ()
    inherited: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    gpus: int = 0


def wrapped(command: Command, program: str, settings: Settings, *, before: int = 0) -> Command:
    """Return the command that runs `command` in a container. Its first words (`before`) start it on each node, and stay outside.

    Raise LaunchError for a path that cannot be mounted.
    """
    for mount in settings.mounts:
        source, _, rest = mount.partition(":")
        if "," in mount or rest.removesuffix(":ro").count(":") > 0:
            raise LaunchError(f"{mount}: a container cannot mount a path with a comma or a colon; rename {source}")
    fixed = {"HOME": str(settings.home), **settings.fixed}
    fixed |= {name: value for name in _OF_PROGRAM if (value := command.env.get(name)) is not None}
    own = {name: value for name, value in command.env.items() if name not in _OF_PROGRAM}
    names = dict.fromkeys((*settings.inherited, *(name for name, value in own.items() if value is not None)))
    parts = _Parts(command, settings, fixed, own, tuple(name for name in names if name not in fixed), before)
    return {PODMAN: _podman, APPTAINER: _apptainer, PYXIS: _pyxis}[program](parts)


@dataclass(frozen=True, slots=True)
class _Parts:
    """A command and its variables: with a `fixed` value, its `own`, and the `names` of those that the container gets."""

    command: Command
    settings: Settings
    fixed: Mapping[str, str]
    own: Mapping[str, str | None]
    names: tuple[str, ...]
    before: int

    @property
    def outside(self) -> tuple[str, ...]:
        return self.command.argv[: self.before]

    @property
    def inner(self) -> tuple[str, ...]:
        return self.command.argv[self.before :]


def _podman(parts: _Parts) -> Command:
    settings = parts.settings
    # With the host's process ids, the ids in the logs, in nvidia-smi and in the kernel's messages are those that Tunebench sees.
    shared = ("--network=host", "--ipc=host", "--pid=host", "--pids-limit=-1", "--security-opt=label=disable")
    words = ("podman", "run", "--rm", "--pull=never", "--entrypoint=", "--log-driver=none", *shared)
    user = f"--user={settings.user}" if settings.user else "--userns=keep-id"
    gpus = ("--device=nvidia.com/gpu=all",) if settings.gpus else ()
    variables = (f"--env={name}={value}" for name, value in parts.fixed.items())
    passed = (f"--env={name}" for name in dict.fromkeys((*parts.names, MARKER)))
    unset = (f"--unsetenv={name}" for name, value in parts.own.items() if value is None)
    mounts = (f"--volume={mount}" for mount in settings.mounts)
    place = (f"--workdir={parts.command.cwd}", settings.image)
    run_dir = parts.own.get(RUN_DIR)
    noted = (f"--cidfile={RunFolder(Path(run_dir)).container}",) if run_dir else ()
    argv = (*words, *noted, user, *gpus, *variables, *passed, *unset, *mounts, *place, *parts.inner)
    return replace(parts.command, argv=(*parts.outside, *argv), env=parts.own)


def _apptainer(parts: _Parts) -> Command:
    settings = parts.settings
    # On several nodes, srun gives each node other variables, and only without --cleanenv they reach the container.
    clean = () if parts.outside else ("--cleanenv",)
    words = (
        "apptainer",
        "exec",
        *clean,
        "--no-eval",
        f"--home={parts.fixed['HOME']}",
        *(("--nv",) if settings.gpus else ()),
    )
    mounts = (f"--bind={mount}" for mount in settings.mounts)
    place = (f"--pwd={parts.command.cwd}", settings.image)
    values = {name: value for name, value in parts.fixed.items() if name != "HOME"}
    values |= {name: value for name, value in settings.inherited.items() if clean or not name.startswith("SLURM_")}
    values |= {name: value for name, value in parts.own.items() if value is not None}
    env = {**_NO_PATHS, **parts.own, **{f"{FOR_APPTAINER}{name}": value for name, value in values.items()}}
    return replace(parts.command, argv=(*parts.outside, *words, *mounts, *place, *parts.inner), env=env)


def _pyxis(parts: _Parts) -> Command:
    settings = parts.settings
    own, step = dict(parts.own), parts.outside
    if not step:
        step = (*_STEP, f"--gres={f'gpu:{settings.gpus}' if settings.gpus else 'none'}", *_STEP_REST)
    if settings.gpus:  # Slurm names the GPUs of a step
        own["CUDA_VISIBLE_DEVICES"] = None
    own = {**_NO_PATHS, **own}
    exported = ",".join(("--export=ALL", *(f"{name}={value}" for name, value in parts.fixed.items())))
    step = tuple(exported if word == "--export=ALL" else word for word in step)
    return replace(parts.command, argv=(*step, *_pyxis_options(parts), *parts.inner), env=own)


def _pyxis_options(parts: _Parts) -> Iterator[str]:
    settings = parts.settings
    yield f"--container-image={settings.image}"
    yield f"--container-mounts={','.join(settings.mounts)}"
    yield f"--container-workdir={parts.command.cwd}"
    yield f"--container-env={','.join((*parts.fixed, *parts.names))}"
    yield from ("--no-container-mount-home", "--no-container-remap-root", "--no-container-entrypoint")
