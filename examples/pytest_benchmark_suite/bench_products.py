"""Matrix products of torch: plain ones, and those that einsum makes from an equation."""

import pytest

torch = pytest.importorskip("torch")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def finished(function, *tensors):
    """Call the function, and wait for the GPU. Otherwise a round would only be the time of a launch."""
    result = function(*tensors)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return result


@pytest.mark.parametrize("size", [64, 256])
def test_matmul(benchmark, size):
    left, right = (torch.rand(size, size, device=DEVICE) for _ in range(2))
    benchmark(finished, torch.matmul, left, right)


@pytest.mark.parametrize("equation", ["bij,bjk->bik", "bij,kj->bik"])
def test_einsum(benchmark, equation):
    left = torch.rand(4, 64, 64, device=DEVICE)
    right = torch.rand(*left.shape[-equation.split(",")[1].index("-") :], device=DEVICE)
    result = benchmark(finished, torch.einsum, equation, left, right)
    assert result.shape == (4, 64, 64)
