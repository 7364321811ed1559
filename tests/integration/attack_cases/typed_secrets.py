"""Secrets that a person writes: in a scenario file, in broken YAML, on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from attack_cases._preloaded import call
from attack_cases._secrets import PLAIN, assert_hidden
from attack_cases.register import case
from attack_cases.scene import Scene


def _file(**changes: Any) -> dict[str, Any]:
    command = ["{python}", "{scenario_dir}/trainer.py", "{scenario_dir}", "{number}"]
    scenario: dict[str, Any] = {"name": "quick", "trainer": "custom", "device": "cpu", "matrix": {"number": [0]}}
    scenario["custom"] = {"command": command, "launcher": "none", "metrics": {"train_loss": {"key": "train_loss"}}}
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(scenario.get(key), dict):
            scenario[key] = {**scenario[key], **value}
        else:
            scenario[key] = value
    return {"scenarios": [scenario]}


COMMAND = ["{python}", "{scenario_dir}/trainer.py", "{scenario_dir}", "{number}"]
IN_THE_FILE: dict[str, dict[str, Any]] = {
    "name": _file(name=PLAIN),
    "tag": _file(tags=[PLAIN]),
    "env": _file(env={"FOO": PLAIN}),
    "env-secret": _file(env={"HF_TOKEN": PLAIN}),
    "env-list": _file(env={"HF_TOKEN": [PLAIN]}),
    "env-url": _file(env={"HTTPS_PROXY": f"http://me:{PLAIN}@proxy:1"}),
    "env-text": _file(env={"CONN": f"Server=h;Password={PLAIN};"}),
    "argument": _file(arguments={"note": PLAIN}),
    "argument-secret": _file(arguments={"hub_token": PLAIN}),
    "argument-name": _file(arguments={PLAIN: 1}),
    "axis": _file(matrix={"note": [PLAIN, "b"]}),
    "axis-secret": _file(matrix={"api_key": [PLAIN, "b"]}),
    "zip": _file(zip={"api_key": [PLAIN, "b"]}),
    "include": _file(include=[{"number": 0, "password": PLAIN}]),
    "exclude": _file(exclude=[{"number": PLAIN}]),
    "word": _file(custom={"command": [*COMMAND, PLAIN]}),
    "word-option": _file(custom={"command": [*COMMAND, "--token", PLAIN]}),
    "word-option=": _file(custom={"command": [*COMMAND, f"--token={PLAIN}"]}),
    "word-header": _file(custom={"command": [*COMMAND, "-H", f"X-API_KEY: {PLAIN}"]}),
    "shell-line": _file(custom={"command": ["bash", "-c", f"DB_PASSWORD={PLAIN} python {{scenario_dir}}/trainer.py . 1"]}),
    "shell-option": _file(custom={"command": ["bash", "-c", f"python {{scenario_dir}}/trainer.py . 1 --token={PLAIN}"]}),
    "pattern": _file(custom={"results": "log", "metrics": {"x": {"pattern": f"{PLAIN} (.*)"}}}),
    "metric-name": _file(custom={"metrics": {PLAIN: {"key": "train_loss"}}}),
    "result-file": _file(custom={"results": f"file:{PLAIN}.json"}),
    "unknown-key": _file(hub_tokn=PLAIN),
    "unknown-key-name": _file(**{PLAIN: 1}),
    "wrong-type": _file(timeout_s=PLAIN),
    "wrong-device": _file(device=PLAIN),
    "wrong-trainer": _file(trainer=PLAIN),
    "framework": _file(framework_config=[PLAIN]),
    "python": _file(python=f"/opt/{PLAIN}/python"),
    "baseline": _file(baseline={"number": PLAIN}),
    "monitor": _file(monitors=[PLAIN]),
    "script": {"scenarios": [{"name": "quick", "script": ["trainer.py", f"--password={PLAIN}"], "device": "cpu"}]},
    "script-missing": {"scenarios": [{"name": "quick", "script": f"{PLAIN}.py", "device": "cpu"}]},
    "module": {"scenarios": [{"name": "quick", "module": f"m.{PLAIN}", "device": "cpu"}]},
    "experiment-tag": {**_file(), "experiment_tag": PLAIN},
    "executor": {**_file(), "executor": PLAIN},
    "data": {**_file(), "data_processing": {"dataset_name": f"https://me:{PLAIN}@host/x"}},
    "model": {"scenarios": [{"name": "quick", "arguments": {"model_name_or_path": f"https://me:{PLAIN}@h/m"}}]},
}  # fmt: skip


@case(known=(True, False), place=IN_THE_FILE)
def in_the_scenario_file(scene: Scene, known: bool, place: dict[str, Any]) -> None:
    """A secret anywhere in the scenario file is refused or masked, in plans and in runs; `known`: it is a variable's value, too."""
    text = json.dumps(place)
    nameless = not re.search(r'(token|api_key|password|HF_TOKEN|DB_PASSWORD)[=":, \[]+Tr0|://', text, re.IGNORECASE)
    if known:
        scene.env["DB_PASSWORD"] = PLAIN
    elif nameless:
        return
    (scene.folder / "scenarios.yaml").write_text(text)
    call(scene, "plan", "scenarios.yaml")
    call(scene, "plan", "scenarios.yaml", "--json")
    call(scene, "plan", "scenarios.yaml", "--commands")
    if scene.run().code in (0, 1):
        call(scene, "bundle", "results", "--output", "out.tar.gz")
    assert_hidden(scene)


@case(
    text={
        "open-quote": f"scenarios:\n- name: 'x\n  env: {{HF_TOKEN: {PLAIN}}}\n",
        "tab": f"scenarios:\n- name: x\n\tpassword: {PLAIN}\n",
        "open-list": f"scenarios: [\n hub_token: {PLAIN}\n",
        "double-key": f"scenarios:\n- name: x\n  env: {{API_KEY: {PLAIN}, API_KEY: {PLAIN}}}\n",
        "alias": f"scenarios: *{PLAIN}\n",
        "tag": f"scenarios: !!python/object:{PLAIN} x\n",
        "anchor": f"scenarios: &{PLAIN} [*{PLAIN}]\n",
        "top-key": f"{PLAIN}: 1\n",
        "not-a-map": f"{PLAIN}\n",
    }
)
def in_broken_yaml(scene: Scene, text: str) -> None:
    """A message about broken YAML does not show the secret of the line."""
    scene.env["DB_PASSWORD"] = PLAIN
    (scene.folder / "scenarios.yaml").write_text(text)
    assert call(scene, "plan", "scenarios.yaml").code == 2
    assert_hidden(scene)


ON_THE_LINE: Sequence[Sequence[str]] = (
    ("run", "scenarios.yaml", "--set", f"arguments.hub_token={PLAIN}"),
    ("run", "scenarios.yaml", "--set", f"env.HF_TOKEN={PLAIN}"),
    ("run", "scenarios.yaml", "--set", f"arguments.note={PLAIN}"),
    ("run", "scenarios.yaml", "--axis", f"api_key={PLAIN},b"),
    ("run", "scenarios.yaml", "--set", f"nonsense={PLAIN}"),
    ("run", "scenarios.yaml", "--set", PLAIN),
    ("run", "scenarios.yaml", f"--hub-token={PLAIN}"),
    ("run", "scenarios.yaml", PLAIN),
    ("run", f"{PLAIN}.yaml"),
    ("run", "scenarios.yaml", "--scenario", PLAIN),
    ("run", "scenarios.yaml", "--framework", PLAIN),
    ("run", "scenarios.yaml", "--trainer", PLAIN),
    ("run", "scenarios.yaml", "--gpus", PLAIN),
    ("run", "scenarios.yaml", "--parallel", PLAIN),
    ("run", "scenarios.yaml", "--executor", PLAIN),
    ("run", "scenarios.yaml", "--results", f"r-{PLAIN}"),
    ("run", "scenarios.yaml", "--retry-failed", f"{PLAIN}"),
    ("plan", "scenarios.yaml", "--assume", PLAIN),
    ("plan", "scenarios.yaml", "--cell", PLAIN),
    ("plan", "scenarios.yaml", "--memory", PLAIN),
    (PLAIN,),
    ("report", PLAIN),
    ("report", "results", "--format", PLAIN),
    ("report", "results", "--baseline", f"{PLAIN}=1"),
    ("report", "results", "--keep", PLAIN),
    ("report", "results", "--pivot", f"{PLAIN},number"),
    ("status", PLAIN),
    ("show", PLAIN),
    ("cancel", "results", PLAIN),
    ("compare", "results", PLAIN),
    ("compare", "results", "results", "--metrics", PLAIN),
    ("compare", "results", "results", "--min-effect", PLAIN),
    ("compare", "results", "results", "--output", f"{PLAIN}.xyz"),
    ("history", PLAIN),
    ("export", "--to", "mlflow", "results", "--dest", f"https://me:{PLAIN}@127.0.0.1:9/x"),
    ("export", "--to", "tensorboard", "results", "--dest", f"tb-{PLAIN}"),
    ("bundle", "results", "--output", f"{PLAIN}.zip"),
    ("rerun", "--from", f"{PLAIN}.json"),
    ("list", PLAIN),
    ("doctor", "--python", f"/opt/{PLAIN}/python"),
    ("monitor", "--once", "--gpus", PLAIN),
    ("init", f"{PLAIN}/x.yaml"),
)  # fmt: skip


@case(words={" ".join(words).replace(PLAIN, "SECRET"): words for words in ON_THE_LINE})
def on_the_command_line(scene: Scene, words: Sequence[str]) -> None:
    """A secret among the words of a command is masked in what the command prints and writes."""
    scene.env["DB_PASSWORD"] = PLAIN
    needs_results = "results" in words and words[0] not in ("run", "plan")
    if needs_results:
        assert scene.run().code == 0
    call(scene, *words, *(["--yes"] if words[0] == "run" else []))
    assert_hidden(scene)
