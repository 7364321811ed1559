"""Attacks Tunebench with hostile files, signals, disks and clocks, and checks what it promises: one case after the other.

    python tests/integration/attacks.py [--only WORD ...] [--list] [--jobs 2] [--keep]

A case is chosen by a part of its name. The cases are in `attack_cases/<area>.py`. Some need root, and say so if they are skipped.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from attack_cases.register import CASES, Case, Skipped  # noqa: E402
from attack_cases.scene import Scene, new_scene  # noqa: E402

NO_AREA = ("__init__", "register", "scene")


def load_areas() -> None:
    """Import every module of cases, which register themselves."""
    for path in sorted((HERE / "attack_cases").glob("*.py")):
        if path.stem not in NO_AREA and not path.stem.startswith("_"):
            importlib.import_module(f"attack_cases.{path.stem}")


def carry_out(case: Case, *, keep: bool) -> str | None:
    """Run a case in a scene of its own. Return None if all promises hold, else what is broken."""
    with new_scene(keep=keep) as scene:
        try:
            case.attack(scene)
            scene.check()
        except Skipped as why:
            return f"skipped: {why}"
        except Exception as error:  # a mistake in a case must not stop the others
            return _told(error, scene)
    return None


def _told(error: Exception, scene: Scene) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = next((f"{Path(one.filename).name}:{one.lineno}" for one in reversed(frames) if "attack" in one.filename), "")
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    return f"{kind}{error}\n  at {own}, in {scene.folder}\n{scene.story()}"


def chosen(words: list[str]) -> list[Case]:
    """Return the cases whose names contain one of the words, or all cases without words."""
    return [case for case in CASES if not words or any(word in case.name for word in words)]


def run_all(cases: list[Case], *, jobs: int, keep: bool) -> int:
    """Run the cases, print a line for each, and return the number of broken promises."""
    broken, skipped = [], 0
    with ThreadPoolExecutor(jobs) as pool:
        began = time.monotonic()
        waiting = {pool.submit(carry_out, case, keep=keep): case for case in cases}
        for done in as_completed(waiting):
            name, wrong = waiting[done].name, done.result()
            is_skipped = wrong is not None and wrong.startswith("skipped")
            skipped += is_skipped
            broken += [name] if wrong is not None and not is_skipped else []
            print(f"{'ok    ' if wrong is None else 'skip  ' if is_skipped else 'BROKEN'} {name}", flush=True)
            if wrong is not None:
                print("  " + wrong, flush=True)
    print(f"{len(cases)} cases, {skipped} skipped, {len(broken)} broken, {time.monotonic() - began:.0f} s")
    print("\n".join(broken))
    return len(broken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the folders of all cases")
    given = parser.parse_args()
    # A shell that starts this with `&` ignores Ctrl-C, and nohup ignores the hangup. The attacked processes must not inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    load_areas()
    cases = chosen(given.only)
    if given.list:
        print("\n".join(case.name for case in cases))
        return
    sys.exit(1 if run_all(cases, jobs=given.jobs, keep=given.keep) else 0)


if __name__ == "__main__":
    main()
