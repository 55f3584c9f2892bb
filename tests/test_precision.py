import pytest
import torch

from rrf import precision


@pytest.mark.parametrize(
    ("amx", "avx512_bf16", "amd", "is_bf16", "compiled"),
    [
        (True, True, False, True, "fp32"),  # compiled code does not use AMX
        (False, True, True, True, "bf16"),
        (False, True, False, False, "fp32"),  # an Intel Xeon whose AMX the virtual machine hides
        (False, False, True, False, "fp32"),
        (False, False, False, False, "fp32"),
    ],
)
def test_auto_is_bf16_where_that_is_faster(amx, avx512_bf16, amd, is_bf16, compiled, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
    monkeypatch.setattr(precision, "_is_amd", lambda: amd)
    cpu = torch.device("cpu")

    assert precision.is_bf16("auto", cpu) is is_bf16
    with precision.autocast("auto", cpu):
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == (torch.bfloat16 if is_bf16 else torch.float32)
    assert precision.products("auto", cpu) == compiled
    assert precision.is_bf16("bf16", cpu)
    assert precision.products("bf16", cpu) == "bf16"
    assert not precision.is_bf16("fp32", cpu)
