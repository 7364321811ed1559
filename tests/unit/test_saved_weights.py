"""Random weights that are saved once: every run starts from them, and a file that does not fit is explained."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from arguments import ArgumentError, Own
from models import build_model, load_config
from saved_weights import digest, place, save
from settings import BUILT

torch = pytest.importorskip("torch")
SMALL = {"hidden_size": ["16"], "intermediate_size": ["16"], "num_hidden_layers": ["1"], "vocab_size": ["32"]}


def own(folder: Path, **changes: Any) -> Own:
    name = "config:tiny-llama"
    return Own(**{"model_name_or_path": name, "weights": "saved", "weights_folder": str(folder), **changes})


def built(chosen: Own, *, seed: int = 1, words: Any = SMALL) -> Any:
    return build_model(chosen, load_config(chosen, words), words=words, seed=seed)


def same(first: Any, second: Any) -> bool:
    both = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(mine, theirs) for mine, theirs in both)


def test_the_first_run_saves_what_it_drew_and_later_runs_load_it(tmp_path: Path) -> None:
    chosen = own(tmp_path)
    first = built(chosen)
    assert same(first, built(own(tmp_path, weights="drawn")))
    file = place(chosen, SMALL, seed=1)
    assert [path.name for path in file.parent.iterdir()] == ["model.safetensors"]
    # Another version would draw other weights: its run starts from the saved ones.
    file.unlink()
    save(built(own(tmp_path, weights="drawn"), seed=2), file)
    assert same(built(chosen), built(own(tmp_path, weights="drawn"), seed=2))
    save(first, file)
    assert not same(built(chosen), first), "a file that is there stays"


def test_what_is_drawn_after_the_weights_is_the_same_whether_they_were_saved_or_loaded(tmp_path: Path) -> None:
    built(own(tmp_path))
    first = torch.rand(3)
    built(own(tmp_path))
    assert torch.equal(first, torch.rand(3))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "float8_e4m3fn"])
def test_the_digest_tells_weights_apart_in_one_bit_name_or_shape(dtype: str) -> None:
    def made(change: int = 0, shape: tuple[int, ...] = (3, 5), name: str = "a") -> Any:
        model = torch.nn.Module()
        bits = torch.arange(15 * getattr(torch, dtype).itemsize, dtype=torch.uint8)
        bits[7] += change
        model.register_buffer(name, bits.view(getattr(torch, dtype)).reshape(shape))
        return model

    different = [made(), made(1), made(shape=(5, 3)), made(name="b")]
    assert len({digest(model) for model in different}) == 4
    assert digest(made()) == digest(made())
    part = made()
    part.a = torch.stack([part.a.reshape(-1).view(torch.uint8)] * 2).view(part.a.dtype)[1].reshape(3, 5)
    assert part.a.storage_offset() == 15
    assert digest(part) == digest(made()), "a part of a larger tensor"


def test_the_digest_tells_a_weight_from_one_with_other_rows_first() -> None:
    model = torch.nn.Linear(1024, 8)
    before = digest(model)
    with torch.no_grad():
        model.weight.copy_(model.weight.flip(0))
    assert digest(model) != before


def test_the_model_says_which_weights_it_started_from(tmp_path: Path) -> None:
    """The file is each machine's own, and another version may have saved it."""
    trainer = SimpleNamespace(model=built(own(tmp_path)))
    first = BUILT["model_fingerprint"](trainer)
    file = place(own(tmp_path), SMALL, seed=1)
    file.unlink()
    save(built(own(tmp_path, weights="drawn"), seed=2), file)
    other = BUILT["model_fingerprint"](SimpleNamespace(model=built(own(tmp_path))))
    assert first and other and first != other
    assert BUILT["model_fingerprint"](SimpleNamespace(model=built(own(tmp_path, weights="drawn")))) is None


def test_another_size_seed_or_dtype_has_a_file_of_its_own(tmp_path: Path) -> None:
    chosen = own(tmp_path)
    files = {
        place(chosen, SMALL, seed=1),
        place(chosen, {**SMALL, "vocab_size": ["64"]}, seed=1),
        place(chosen, SMALL, seed=2),
        place(own(tmp_path, dtype="bfloat16"), SMALL, seed=1),
    }
    assert len(files) == 4
    assert place(chosen, dict(reversed(SMALL.items())), seed=1) in files


def test_a_file_that_does_not_fit_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = own(tmp_path)
    file = place(chosen, SMALL, seed=1)
    save(built(own(tmp_path, weights="drawn"), words={**SMALL, "hidden_size": ["32"]}), file)
    with pytest.raises(ArgumentError, match=r"does not fit this model .*; remove the file\."):
        built(chosen)
    file.write_bytes(b"no safetensors")
    with pytest.raises(ArgumentError, match="does not fit this model"):
        built(chosen)
    for make in (lambda: file.symlink_to("nowhere"), lambda: os.mkfifo(file)):
        file.unlink()
        make()
        with pytest.raises(ArgumentError, match=r"model\.safetensors is not a regular file; remove it"):
            built(chosen)
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(ArgumentError, match="does not work with DeepSpeed"):
        built(chosen)


def test_a_disk_without_hard_links_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refused)
    chosen = own(tmp_path)
    first = built(chosen)
    file = place(chosen, SMALL, seed=1)
    assert [path.name for path in file.parent.iterdir()] == ["model.safetensors"]
    save(built(own(tmp_path, weights="drawn"), seed=2), file)
    assert same(built(chosen), first), "a file that is there stays"
