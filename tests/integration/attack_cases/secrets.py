"""Secrets on every way in, and a search for them on every way out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from attack_cases._preloaded import call
from attack_cases._secrets import PLAIN, assert_hidden
from attack_cases.register import case
from attack_cases.scene import ROOT, SECRET, Scene

VIEWS = (
    ("status", "results", "--json"),
    ("show", "quick", "--results", "results"),
    ("report", "results", "--format", "json"),
    ("bundle", "results", "--output", "out.tar.gz"),
)


def look_everywhere(scene: Scene) -> None:
    for words in VIEWS:
        call(scene, *words)
    assert_hidden(scene)


SPELLINGS = {
    "plain": "%s",
    "json": '{"a": "%s"}',
    "repr": "ValueError('%s')",
    "url": "https://host/x?key=1&z=%s",
    "coloured": "\\x1b[31m%s\\x1b[0m",
    "in-a-word": "xx%sxx",
    "tab": "a\\t%s\\tb",
}


@case(spelling=SPELLINGS, code=(0, 1))
def value_of_a_variable_in_logs(scene: Scene, spelling: str, code: int) -> None:
    """The value of DB_PASSWORD, printed by a program that ends well or badly, is in no file but its logs."""
    scene.env["DB_PASSWORD"] = PLAIN
    line = (
        f"'{spelling}' % os.environ['DB_PASSWORD']"
        if "'" not in spelling
        else f'"{spelling}" % os.environ["DB_PASSWORD"]'
    )
    scene.scenario(f"print({line}); print({line}, file=sys.stderr)\nif {code}: sys.exit({code})")
    scene.run()
    look_everywhere(scene)


NAMED = {
    "option=": "--password={}",
    "option": "--password {}",
    "hf-option=": "--hf-token={}",
    "argparse": "train.py: error: unrecognized arguments: --api-key={}",
    "variable": "PASSWORD={}",
    "colon": "password: {}",
    "json": '{{"password": "{}"}}',
    "repr": "Namespace(model='m', hub_token='{}', seed=1)",
    "dict": "{{'api_key': '{}'}}",
    "environ": "os.environ['HF_TOKEN'] = '{}'",
    "shell-line": "+ python train.py --token={} --seed 1",
    "list": "['train.py', '--token', '{}']",
    "list=": "['train.py', '--token={}']",
    "query": "GET /x?access_token={}&y=1",
    "url": "postgres://me:{}@db/x",
    "header": "Authorization: Bearer {}",
    "coloured-name": "\x1b[1mpassword\x1b[0m={}",
}


@case(named=NAMED)
def name_before_the_secret(scene: Scene, named: str) -> None:
    """A secret that only its name shows, in the error of a failed program, is in no file but its logs."""
    text = named.format(PLAIN)
    scene.scenario(f"print({text!r}, file=sys.stderr); sys.exit(2)")
    scene.run()
    look_everywhere(scene)


@case(before=(0, 20, 40, 50, 60, 70))
def cut_in_a_step_line(scene: Scene, before: int) -> None:
    """A note shows the beginning of a wrong step line. The cut must not leave half a secret."""
    scene.env["DB_PASSWORD"] = PLAIN
    line = json.dumps({"step": 1, "seconds": "x" * before + PLAIN})
    scene.scenario(f"print({line!r}, flush=True)", steps="stdout")
    scene.run()
    look_everywhere(scene)
    assert_hidden(scene, part=10)


@case(before=(0, 30, 45, 55))
def cut_in_a_metric(scene: Scene, before: int) -> None:
    """A value that is no number is shown in part. The cut must not leave half a secret."""
    scene.env["DB_PASSWORD"] = PLAIN
    line = json.dumps({"train_runtime": 1.0, "train_loss": "x" * before + PLAIN})
    scene.scenario(f"print({line!r}, flush=True); sys.exit(0)")
    scene.run()
    look_everywhere(scene)
    assert_hidden(scene, part=10)


@case(
    place={
        "word-metric": "print(json.dumps({'train_runtime': 1, 'train_loss': 1, 'note': S})); sys.exit(0)",
        "file-name": "pathlib.Path(S + '.txt').write_text('x')",
        "folder-name": "(run_dir / S).mkdir()",
        "worker-file": "worker({'rank': 0, 'settings': {'x': S}, 'error': {'message': S}})",
        "worker-versions": "worker({'rank': 0, 'versions': {S: S}})",
        "child-words": "subprocess.Popen(['sleep', '60', S] if 0 else [sys.executable, '-c', 'import time; time.sleep(60)', S])",
        "record": "(run_dir / 'record.json').write_text(json.dumps({'x': S}))",
        "title": "print('\\x1b]0;' + S + '\\x07')",
        "many-lines": "[print(S[:at], S[at:], sep='\\n') for at in range(1, len(S))]",
    }
)  # fmt: skip
def hidden_places(scene: Scene, place: str) -> None:
    """A program puts the secret where its run's files take it from."""
    scene.env["DB_PASSWORD"] = PLAIN
    metrics = {name: {"key": name} for name in ("train_runtime", "train_loss", "note")}
    worker = "worker = lambda content: (run_dir / 'worker-rank0.json').write_text(json.dumps(content))"
    scene.scenario(f"S = os.environ['DB_PASSWORD']\n{worker}\n{place}", custom={"metrics": metrics}, timeout_s=20)
    scene.run()
    for words in VIEWS:
        call(scene, *words)
    own = [path for path in scene.runs()[0].rglob("*") if PLAIN in path.name or path.name.startswith("record.json.")]
    for path in own:
        path.rename(scene.folder / "trainer.py") if path.is_file() else path.rmdir()
    assert_hidden(scene)


@case(words={"option": ["--password", PLAIN], "argument": [PLAIN], "option=": [f"--hub_token={PLAIN}"]})
def stacks_of_a_stalled_run(scene: Scene, words: list[str]) -> None:
    """`stacks.txt` names each process by its command line, which may have a secret."""
    scene.env["DB_PASSWORD"] = PLAIN
    inner = (
        "import faulthandler, signal, time, sys; faulthandler.register(signal.SIGUSR2, file=sys.stderr); "
        "signal.signal(signal.SIGINT, signal.SIG_DFL); time.sleep(60)"
    )
    scene.scenario(
        "print('x', flush=True); signal.signal(signal.SIGINT, signal.SIG_IGN); "
        f"subprocess.run([sys.executable, '-c', {inner!r}, *{words!r}])",
        stall_timeout_s=3,
    )
    scene.run()
    assert (scene.runs()[0] / "stacks.txt").exists()
    look_everywhere(scene)


@case(url=(f"https://{PLAIN}@github.com/x/y.git", f"https://me:{PLAIN}@github.com/x/y.git"))
def package_from_a_url(scene: Scene, url: str) -> None:
    """A package that was installed from an address with a token is in requirements.txt without it."""
    info = scene.folder / "packages" / "planted-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    vcs = {"vcs": "git", "commit_id": "0" * 40}
    (info / "direct_url.json").write_text(json.dumps({"url": url, "vcs_info": vcs}))
    scene.env["PYTHONPATH"] = f"{ROOT}:{info.parent}"  # with the real pip
    scene.scenario()
    scene.run()
    listed = (scene.results / "requirements.txt").read_text()
    (info / "direct_url.json").unlink()
    assert PLAIN not in listed, listed
    assert_hidden(scene)


@case()
def known_form_in_every_value(scene: Scene) -> None:
    """The scene's own token, which every run inherits, printed in a crash that names each variable."""
    scene.scenario("raise SystemExit(str(dict(os.environ)))")
    scene.run()
    assert_hidden(scene, SECRET)


@case()
def events_for_programs(scene: Scene) -> None:
    """Lines of JSON for programs have no secret, and each line is JSON."""
    scene.env["DB_PASSWORD"] = PLAIN
    scene.scenario("print('password=' + os.environ['DB_PASSWORD'], file=sys.stderr); sys.exit(1)", numbers=2)
    said = scene.run("--json-lines")
    assert [json.loads(line)["event"] for line in said.out.splitlines()]
    assert_hidden(scene)


@case(shell=("bash", "dash"))
def repeat_script(scene: Scene, shell: str) -> None:
    """`command.sh` asks for a secret of the environment, and repeats the run when it is there."""
    scene.scenario("print(len(os.environ['ATTACK_API_TOKEN']))")
    assert scene.run().code == 0
    script = scene.runs()[0] / "command.sh"
    said = scene.ended(scene.start_any("bash", str(script), str(scene.folder / "again")))
    assert said.code == 0, said.err
    assert Path(sys.executable).name in script.read_text()
    assert_hidden(scene, SECRET)
