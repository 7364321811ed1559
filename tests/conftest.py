"""What all tests share: `golden(name, text)` holds a text that we emit against tests/golden; `--accept` rewrites it."""

from __future__ import annotations

import difflib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]
GOLDEN = Path(__file__).parent / "golden"

for _name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE", "TUNEBENCH_SITE"):  # of whoever runs the tests
    os.environ.pop(_name, None)

for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        # In a shell's background or under nohup it is ignored, and would be by all that is started and interrupted here.
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="take what the tests emit as the golden texts")


@pytest.fixture(scope="session", autouse=True)
def folder_for_what_others_leave(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Torch's launcher and repeated runs leave folders in TMPDIR: pytest removes its own in time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("t")))
        patch.setenv(
            "XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("c"))
        )  # whoever runs the tests may have a site file
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: the text must be what tests/golden/<name> holds."""

    def check(name: str, text: str) -> None:
        file = GOLDEN / name
        if request.config.getoption("--accept"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            return
        accepted = file.read_text(encoding="utf-8") if file.exists() else ""
        if text != accepted:
            difference = difflib.unified_diff(
                accepted.splitlines(keepends=True), text.splitlines(keepends=True), f"golden/{name}", "now"
            )
            pytest.fail(
                f"tests/golden/{name} is not what is emitted now:\n{''.join(difference)}\n"
                f"If the change is meant: pytest --accept {request.node.nodeid}",
                pytrace=False,
            )

    return check


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """`in_process("plan", …, width=100)`: the command in this process, in a folder of its own: exit code, stdout, stderr."""
    from orchestrator import cli
    from orchestrator.cli.terminal import console

    monkeypatch.chdir(tmp_path)

    def started(*words: object, width: int = 200, folder: Path = tmp_path, **env: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tunebench", *map(str, words)])
        for name, value in {"TUNEBENCH_CACHE": str(folder / "cache"), "COLUMNS": str(width), **env}.items():
            monkeypatch.setenv(name, value)
        for made in (console.out, console.err):  # a console keeps the width that it began with
            made.cache_clear()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return started
