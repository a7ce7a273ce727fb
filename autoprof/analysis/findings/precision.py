"""Matrix products in full fp32 on a device with tensor cores."""

from __future__ import annotations

import re
from collections.abc import Iterator

from autoprof.analysis.findings.finding import Finding, Stake, mean_step_us, mean_us, of_step, on_worst_rank
from autoprof.analysis.summary import TraceSummary

# cuBLAS and CUTLASS name products outside tensor cores like this:
# `ampere_sgemm_128x64_tn`, `cutlass_80_simt_sgemm_...`.
_FP32 = re.compile(r"(?:.*[_ ])?sgemm_|.*simt_sgemm|.*implicit_(?:convolve_)?sgemm")
_ADVICE = (
    "Use tensor cores: mixed_precision='bf16' (fp16 before Ampere) in Accelerator, or"
    " torch.set_float32_matmul_precision('high') for TF32 from Ampere on; compare the loss curve."
)


def look(traces: list[TraceSummary]) -> Iterator[Finding]:
    """Find fp32 matrix products that take at least a tenth of a step on a device that is busy most of it."""
    return on_worst_rank(
        traces, map(_stake, traces), "fp32-matmul", "Matrix products run in full fp32", worth=0.1
    )


def _stake(trace: TraceSummary) -> Stake | None:
    found = [kernel for kernel in trace.kernels if _FP32.match(kernel.name)]
    if not found:
        return None
    busy = mean_us(trace, lambda one: one.device.busy_us if one.device else None)
    took = min(sum(kernel.total_us for kernel in found) / len(trace.steps), busy)
    evidence = (
        f"{of_step(took, trace)} are fp32 products outside tensor cores, most of it {found[0].name[:60]}"
    )
    # A device that waits for the CPU gains nothing from being faster.
    whole = took * busy / mean_step_us(trace)
    return Stake(whole * 0.4, whole * 0.85, evidence, _ADVICE)
