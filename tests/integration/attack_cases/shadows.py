"""Files of the user's folders that have the names of Python's or Tunebench's modules, and folders with odd names."""

from __future__ import annotations

import sys
from pathlib import Path

from attack_cases._shared import check_complete
from attack_cases.register import case
from attack_cases.scene import Said, Scene

MODULES = (
    "secrets",
    "types",
    "json",
    "random",
    "token",
    "datasets",
    "orchestrator",
    "tunebench",
    "accelerate",
    "yaml",
    "select",
    "sitecustomize",
    "signal",
    "copy",
)


def installed(scene: Scene, *words: str, cwd: Path | None = None) -> Said:
    """Run the command as the program that pip installs: its own folder is on Python's path, and the working folder is not."""
    program = scene.folder / "bin" / "tunebench"
    program.parent.mkdir(exist_ok=True)
    program.write_text("import sys\nfrom orchestrator.__main__ import main\nsys.exit(main())\n")
    child = scene.start_any(sys.executable, str(program), *words, cwd=cwd or scene.folder)
    said = scene.ended(child)
    return said


@case(module=MODULES, made=("file", "folder"))
def module_in_working_folder(scene: Scene, module: str, made: str) -> None:
    """A campaign runs in a working folder with a module of the user whose name is one that Tunebench imports."""
    scene.scenario()
    place = scene.folder / (f"{module}.py" if made == "file" else f"{module}/__init__.py")
    place.parent.mkdir(exist_ok=True)
    place.write_text("raise RuntimeError('the wrong module was imported')\n")
    move = scene.folder / "apart"
    move.mkdir()
    for name in ("scenarios.yaml", "trainer.py"):
        (scene.folder / name).rename(move / name)  # else the script's own folder would shadow them for the trainer
    said = installed(scene, "run", "apart/scenarios.yaml", "--yes")
    assert said.code == 0, said.text[-500:]
    check_complete(scene, 1)


@case(module=("json", "secrets", "types", "numbers"))
def module_beside_the_script(scene: Scene, module: str) -> None:
    """A module beside the user's script is the script's business. The commands that read the results do not import it."""
    scene.codes.add(4)  # `compare` of a folder with itself has nothing to compare
    scene.scenario()
    assert scene.run().code == 0
    (scene.folder / f"{module}.py").write_text("raise RuntimeError('the wrong module was imported')\n")
    for words in (
        ("status", "results"),
        ("report", "results"),
        ("compare", "results", "results"),
        ("plan", "scenarios.yaml"),
    ):
        said = installed(scene, *words)
        assert said.code in (0, 4), said.text[-500:]
