"""Rules about devices, which the jobs of the integration tests do not have, and what all findings share."""

from __future__ import annotations

import json

import pytest
from traces import SHARED, document, kernel, slice_, step

from autoprof.cli import main


@pytest.fixture
def findings(write, capsys):
    def found(place):
        assert main(["summary", str(place), "--json"]) == 0
        return {one["slug"]: one for one in json.loads(capsys.readouterr().out)["findings"]}

    return lambda events, **fields: found(write(document(events, **fields)))


def launched(name, at, dur, *, called, number, **fields):
    args = {"correlation": number}
    return [
        slice_("cudaLaunchKernel", called, 4, cat="cuda_runtime", args=args),
        kernel(name, at, dur, args=args, **fields),
    ]


def busy(name="gemm", *, wait=0, count=4):
    """Steps of 1,000 us whose kernels fill them but for ``wait`` us before each."""
    events = []
    for number in range(count):
        begin = 1000 * number
        events.append(step(number, begin, 1000))
        for part in range(2):
            at = begin + 500 * part + wait
            events += launched(name, at, 500 - wait, called=at - wait + 1, number=2 * number + part + 1)
    return events


def test_a_healthy_run_has_none(findings):
    assert findings(busy()) == {}


def test_steps_without_a_length_have_none(findings):
    assert findings([step(0, 5, 0), step(1, 9, 0)]) == {}


def test_a_device_that_waits_for_launches(findings):
    found = findings(busy(wait=150))["host-bound"]
    assert found["saves_us_per_step"]["low"] == pytest.approx(100, rel=0.2)
    assert found["saves_us_per_step"]["high"] == pytest.approx(300, rel=0.2)
    assert found["severity"] in ("medium", "high")
    assert found["steps"] == [0, 1, 2, 3]


def test_a_call_that_stops_the_cpu_until_the_device_is_done(findings):
    events = busy(wait=150)
    for number in range(8):
        events.append(slice_("cudaStreamSynchronize", 500 * number + 5, 145, cat="cuda_runtime"))
    found = findings(events)["synchronisation"]
    assert "2.0 blocking calls a step, most of them cudaStreamSynchronize" in found["evidence"]
    assert "synchronisation" not in findings(busy(wait=150))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ampere_sgemm_128x64_tn", True),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(x)", True),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", False),
        ("cutlass_tensorop_s1688gemm_128x64", False),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x64x32_stage3", False),
    ],
)
def test_products_in_fp32(findings, name, found):
    assert ("fp32-matmul" in findings(busy(name))) is found


@pytest.mark.parametrize(("source", "found"), [("Pageable", True), ("Pinned", False)])
def test_copies_from_pageable_memory(findings, source, found):
    copies = [
        kernel(f"Memcpy HtoD ({source} -> Device)", 1000 * n + 100, 200, stream=8, cat="gpu_memcpy")
        for n in range(4)
    ]
    assert ("pageable-copies" in findings(busy() + copies)) is found


@pytest.mark.parametrize("device", [True, False])
def test_zeroed_gradients_are_told_on_a_device_only(findings, device):
    events = busy() if device else [step(number, 1000 * number, 1000) for number in range(4)]
    for number in range(4):
        at = 1000 * number
        events.append(slice_("Optimizer.step#SGD.step", at + 600, 200, cat="user_annotation"))
        events.append(slice_("Optimizer.zero_grad#SGD.zero_grad", at + 800, 150, cat="user_annotation"))
        events.append(slice_("aten::zero_", at + 810, 100))
        events.append(slice_("torch::autograd::AccumulateGrad", at + 400, 60))
        events.append(slice_("aten::add_", at + 410, 40))
    found = findings(events)
    assert ("zero-grad" in found) is device
    if device:
        assert found["zero-grad"]["saves_us_per_step"] == {"low": 100.0, "high": 140.0}


def test_recording_that_costs_too_much_to_trust(findings):
    assert "profiler-cost" not in findings(busy(), autoprof={"usual_step_s": 0.0009})
    found = findings(busy(), autoprof={"usual_step_s": 0.0005})["profiler-cost"]
    assert "2.0 times" in found["evidence"]


@pytest.mark.skipif(not SHARED.exists(), reason="the real traces are not here")
@pytest.mark.parametrize("place", ["a100_two_ranks", "v100_single", "amd_mi250", "cpu_gloo"])
def test_every_finding_on_real_traces_has_its_numbers(place, capsys):
    main(["summary", str(SHARED / "traces" / place), "--json"])
    for found in json.loads(capsys.readouterr().out)["findings"]:
        saves = found["saves_us_per_step"]
        assert 0 <= saves["low"] <= saves["high"] <= found["step_us"]
        assert found["steps"]
        assert found["ranks"]
        assert any(letter.isdigit() for letter in found["evidence"])
