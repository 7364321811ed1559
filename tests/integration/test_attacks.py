"""Cases of `attacks.py` that found something, each of another kind. All others are started by hand."""

from __future__ import annotations

import os
import sys

import pytest
from attacks import carry_out, chosen, load_areas

NAMES = (
    "again.changed_folder[repeat-far]",
    "calls_of_step.odd_counts[huge]",
    "calls_of_step.reporting_disturbed[file-is-fifo]",
    "claims.claim_without_marker",
    "claims.odd_claim[time-text]",
    "claims.odd_owner[negative,owner.json]",
    "clocks.cancelled_while_clock_jumps[hour-back]",
    "clocks.clock_jumps[far-future,start]",
    "commands.odd_values[run scenarios.yaml --dry-run --retry-failed ?]",
    "edited_results.log_becomes_a_link[stdout.log,elsewhere.log]",
    "edited_results.pipe_for_suite_file[report]",
    "edited_results.secret_in_wide_characters[utf-16-le]",
    "edited_results.speed_that_cannot_be[negative]",
    "environments.limited[size-1k]",
    "folders.absurd_repeat[status]",
    "folders.planted[experiments,dangling]",
    "hostile_files.cell_of_table[repeat]",
    "hostile_files.cell_of_table[status]",
    "hosts.copy_of_living_folder[cancel]",
    "inherited.cancelled_with_blocked_signals[all]",
    "inherited.interrupted_with_blocked_signals[terminate,SIGTERM]",
    "installations.changed_in_a_campaign[half-written]",
    "installations.changed_in_a_campaign[removed]",
    "lying_trainers.in_place_of[experiment.json,pipe]",
    "lying_trainers.in_place_of[steps-rank0.jsonl,link]",
    "lying_trainers.in_place_of[steps-rank0.jsonl,pipe]",
    "lying_trainers.last_lines[line-separator]",
    "machine_files.file_of_the_kernel[meminfo,empty]",
    "machine_files.file_of_the_kernel[stat,unreadable]",
    "namespaces.cancelled_from_a_time_namespace[later]",
    "namespaces.second_call_in_a_time_namespace[earlier]",
    "packing.odd_cost[quotient-0]",
    "probes.damaged_probe[damaged,64]",
    "probes.disturbed_search[two-calls]",
    "processes.signals_at_the_same_time[hup-int-term,2,while stopped]",
    "secrets.cut_in_a_step_line[40]",
    "secrets.name_before_the_secret[argparse]",
    "secrets.stacks_of_a_stalled_run[argument]",
    "shadows.module_in_working_folder[types,file]",
    "streams.nohup",
    "streams.redirected[run,<&- >&- 2>&-]",
    "typed_secrets.in_the_scenario_file[False,env-text]",
    "typed_secrets.in_the_scenario_file[False,script]",
    "typed_secrets.in_the_scenario_file[False,word-header]",
    "typed_secrets.on_the_command_line[run scenarios.yaml SECRET]",
    "watching.cancel_at[training,2]",
)


@pytest.mark.skipif(sys.platform != "linux", reason="the cases use Linux's process files, signals and namespaces")
@pytest.mark.parametrize("name", NAMES)
def test_a_promise_that_an_attack_broke_holds(name: str) -> None:
    load_areas()
    (case,) = [case for case in chosen([name]) if case.name == name]
    wrong = carry_out(case, keep=False)
    if wrong is not None and wrong.startswith("skipped"):
        assert os.geteuid() != 0 or "root" not in wrong
        pytest.skip(wrong)
    assert wrong is None, wrong
