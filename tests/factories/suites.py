"""Suites written as YAML text, for tests of what becomes of them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from orchestrator.machine.provenance import Machine
from orchestrator.plan.config import Suite, load_suite
from orchestrator.plan.expand import Plan, expand
from orchestrator.plan.selection import Selection, parse_selection
from orchestrator.records import Experiment, Gpu

FRAMEWORKS = """
framework_configs:
- {shortname: eager, filename: eager.yaml}
- {shortname: accumulate, filename: accumulate.yaml}
- {shortname: fsdp, filename: fsdp.yaml}
- {shortname: foak, filename: absent-plugin.yaml, plugins: [fused-ops-and-kernels]}
"""
FILES = {
    "eager.yaml": "arguments: {attn_implementation: eager}\nenv: {A: from framework, B: kept}\n",
    "accumulate.yaml": "arguments: {gradient_accumulation_steps: 2}\n",
    "fsdp.yaml": "accelerate: {distributed_type: FSDP, fsdp_config: {fsdp_version: 2}}\ndevice: cuda\nmin_gpus: 2\n",
}
EIGHT_GPUS = Machine(gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}", name="H100") for n in range(8)), cpu_count=8)


def suite(
    folder: Path,
    scenarios: str | dict[str, Any],
    *,
    defaults: str = "max_steps: 5\n",
    frameworks: Mapping[str, str] = MappingProxyType({}),
) -> Suite:
    """A suite whose scenario file is this text (or value), with the framework configurations above and more `frameworks`."""
    (folder / "frameworks").mkdir(exist_ok=True)
    text = textwrap.dedent(scenarios) if isinstance(scenarios, str) else yaml.safe_dump(scenarios, sort_keys=False)
    (folder / "scenarios.yaml").write_text(text, encoding="utf-8")
    (folder / "defaults.yaml").write_text(defaults)
    (folder / "accelerate.yaml").write_text("distributed_type: MULTI_GPU\nfsdp_config: {fsdp_offload_params: false}\n")
    added = "".join(f"- {{shortname: {name}, filename: {name}.yaml}}\n" for name in frameworks)
    (folder / "frameworks" / "CONTENTS.yaml").write_text(FRAMEWORKS + added)
    for name, content in {**FILES, **{f"{name}.yaml": content for name, content in frameworks.items()}}.items():
        (folder / "frameworks" / name).write_text(content)
    return load_suite(folder / "scenarios.yaml")


def planned(
    folder: Path,
    scenarios: str | dict[str, Any],
    *,
    defaults: str = "max_steps: 5\n",
    frameworks: Mapping[str, str] = MappingProxyType({}),
    **choices: Any,
) -> Plan:
    """What it expands to on a machine with eight GPUs; `choices` as for `parse_selection`."""
    return expand(
        suite(folder, scenarios, defaults=defaults, frameworks=frameworks), parse_selection(**choices), EIGHT_GPUS
    )


def expanded(one: Suite, selection: Selection | None = None) -> tuple[Experiment, ...]:
    return expand(one, selection or Selection(), EIGHT_GPUS).experiments
