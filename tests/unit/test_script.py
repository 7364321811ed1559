"""`command.sh`: golden text, hostile words, and that executing it touches nothing that was recorded."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from factories.results import experiment

from orchestrator.plan.command import build_command
from orchestrator.records import Command, Device
from orchestrator.run.script import command_script

HOSTILE = [
    "it's",
    'a "b"',
    "$HOME `id` $(id)",
    "two\nlines",
    "tab\there",
    "zwölf ♞",
    "*",
    "",
    "a\\b",
    "!x",
    "; rm -rf /",
]
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('TUNEBENCH_RUN_DIR'), os.getcwd()]))"


def run_script(path, *arguments, **env):
    done = subprocess.run(
        ["bash", str(path), *arguments], capture_output=True, text=True, env={**os.environ, **env}, check=False
    )
    return done


def test_golden(golden):
    run_dir = Path("/results/experiments/x-1/runs/r1-t1")
    command = Command(
        argv=(
            *("/env/bin/python", "-m", "accelerate.commands.launch", "--config_file", f"{run_dir}/accelerate.yaml"),
            *(
                "--main_process_port",
                "29511",
                f"{run_dir}/tunebench-instrument.py",
                "/pkg/sft.py",
                "--learning_rate",
                "-1e-5",
            ),
            *(
                "--response_template",
                "\n### Response:",
                "--output_dir",
                f"{run_dir}/output",
                "--hub_token",
                "hf_secret",
            ),
        ),
        env={
            "CUDA_VISIBLE_DEVICES": "0,1",
            "HF_TOKEN": "hf_secret",
            "LOGS": f"{run_dir}0/x:{run_dir}/logs",
            "NCCL_DEBUG": None,
            "TUNEBENCH_RUN": "0123",
            "TUNEBENCH_RUN_DIR": str(run_dir),
        },
        cwd=run_dir,
        files={"accelerate.yaml": "x: 1\n", "tunebench-instrument.py": "pass\n"},
    )
    text = command_script(command)
    golden("script/command.sh", text)
    assert "hf_secret" not in text and "29511" not in text


@pytest.fixture(params=["plain", 'it\'s "here"\nand $HOME; ünï'])
def run_dir(request, tmp_path):
    folder = tmp_path / request.param / "r1-t1"
    folder.mkdir(parents=True)
    return folder


def written(run_dir, argv, cwd=None, **env):
    variables = {"TUNEBENCH_RUN_DIR": str(run_dir), **env}
    command = Command(argv=argv, env=variables, cwd=cwd or run_dir, files={"in.yaml": ""})
    (run_dir / "in.yaml").write_text("x: 1\n", encoding="utf-8")
    (run_dir / "command.sh").write_text(command_script(command), encoding="utf-8")
    return run_dir / "command.sh"


def test_words_arrive_as_they_were_and_a_repeat_writes_elsewhere(run_dir, tmp_path):
    doubled = str(run_dir).replace("$", "$$")  # for torchrun
    words = (*HOSTILE, f"--x={run_dir}/out", f"{run_dir}/in.yaml", f"{run_dir}0/y", f"{doubled}/in.yaml:{doubled}/out")
    script = written(run_dir, (sys.executable, "-c", SHOW, *words))
    target = tmp_path / "repeat"
    done = run_script(script, str(target))
    assert done.returncode == 0, done.stderr
    argv, folder, cwd = json.loads(done.stdout)
    assert argv == [
        *HOSTILE,
        f"--x={target}/out",
        f"{run_dir}/in.yaml",
        f"{run_dir}0/y",
        f"{doubled}/in.yaml:{target}/out",
    ]
    assert (folder, cwd) == (str(target), str(target))
    assert sorted(path.name for path in run_dir.iterdir()) == ["command.sh", "in.yaml"]


def test_a_repeat_starts_in_its_own_output_folder_or_where_the_user_s_files_are(run_dir, tmp_path):
    target = tmp_path / "repeat"
    done = run_script(written(run_dir, (sys.executable, "-c", SHOW), cwd=run_dir / "output"), str(target))
    assert json.loads(done.stdout)[-1] == str(target / "output")
    done = run_script(written(run_dir, (sys.executable, "-c", SHOW), cwd=tmp_path), str(tmp_path / "second"))
    assert json.loads(done.stdout)[-1] == str(tmp_path)


def test_it_works_in_a_results_folder_that_was_moved(run_dir, tmp_path):
    read = "import sys; print(open(sys.argv[1]).read())"
    command = Command(
        argv=(sys.executable, "-c", read, f"{run_dir}/accelerate.yaml"),
        env={"TUNEBENCH_RUN_DIR": str(run_dir)},
        cwd=run_dir / "work",
        files={"accelerate.yaml": "x: 1"},
    )
    for name, text in {"accelerate.yaml": "x: 1", "job.json": "{}", "command.sh": command_script(command)}.items():
        (run_dir / name).write_text(text)
    moved = run_dir.rename(tmp_path / "moved")
    assert run_script(moved / "command.sh", tmp_path / "new").stdout.strip() == (
        "x: 1" if "$" not in str(run_dir) else ""
    )


def test_the_recorded_folder_is_refused_as_a_target(run_dir):
    script = written(run_dir, (sys.executable, "-c", SHOW))
    done = run_script(script, str(run_dir))
    assert done.returncode == 2 and "not empty" in done.stderr


@pytest.mark.parametrize("name", ["repeat", "-", "-e", "a b/c"])
def test_a_folder_is_where_it_says_whatever_it_is_called(run_dir, tmp_path, name):
    """A relative one is looked for along CDPATH by `cd`, which then also says where it went; `cd -` goes where one was last."""
    script = written(run_dir, (sys.executable, "-c", SHOW))
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    (elsewhere / name).mkdir(parents=True)
    here.mkdir()
    done = subprocess.run(
        ["bash", str(script), name], cwd=here, capture_output=True, text=True, check=False,
        env={**os.environ, "CDPATH": str(elsewhere), "OLDPWD": str(elsewhere)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], str(here / name), str(here / name)]


def test_leaks_are_unset_and_variables_set(run_dir, tmp_path):
    show = "import os; print(sorted(k for k in os.environ if k in ('RANK', 'FSDP_X', 'A', 'GONE', 'MASTER_PORT')))"
    script = written(run_dir, (sys.executable, "-c", show), A="it's\n", GONE=None)
    done = run_script(script, str(tmp_path / "new"), RANK="3", FSDP_X="1", GONE="x", MASTER_PORT="1")
    assert done.stdout.strip() == "['A']"


def test_the_port_is_chosen_again(run_dir, tmp_path):
    script = written(run_dir, (sys.executable, "-c", "import sys; print(sys.argv)", "--main_process_port", "29500"))
    words = shlex.split(
        run_script(script, str(tmp_path / "a")).stdout.replace("[", "").replace("]", "").replace(",", "")
    )
    assert words[1] == "--main_process_port" and 1024 <= int(words[2]) != 29500


def test_on_several_nodes_the_script_meets_where_it_is_run(tmp_path):
    """In another allocation the first node is another one; the interpreter that finds a port comes after srun and its options."""
    run_dir = tmp_path / "run"
    (run_dir / "work").mkdir(parents=True)
    one = experiment(num_gpus=4, num_nodes=2, device=Device.CPU)
    script = run_dir / "command.sh"
    command = build_command(one, python=sys.executable, gpus=(), run_dir=run_dir, port=20001, host="10.0.0.1")
    script.write_text(command_script(command))
    assert "10.0.0.1" not in script.read_text() and "20001" not in script.read_text()
    tools = tmp_path / "tools"
    tools.mkdir()
    facts = "NodeName=n7 NodeAddr=10.7.7.7 NodeHostName=n7"
    answers = {
        "scontrol": f'case "$*" in *hostnames*) printf "n7\\nn8\\n" ;; *n7*) echo "{facts}" ;; esac',
        "srun": f'exec {shlex.quote(sys.executable)} -c "import json, sys; print(json.dumps(sys.argv[1:]))" "$@"',
    }
    for name, text in answers.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    outside = run_script(script, str(tmp_path / "a"), PATH=path)
    assert outside.returncode and "run this script in a Slurm allocation" in outside.stderr
    done = run_script(script, str(tmp_path / "b"), PATH=path, SLURM_JOB_NODELIST="n[7-8]")
    words = json.loads(done.stdout)
    assert words[words.index("--main_process_ip") + 1] == "10.7.7.7"
    assert words[words.index("--main_process_port") + 1].isdecimal()
    assert words[words.index("sh") + 3] == sys.executable
