"""Asks HolisticTraceAnalysis about the devices of each folder of traces and prints its answers as JSON.

open_hta_device.py FOLDER...
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

from hta.trace_analysis import TraceAnalysis

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)


def rows(frame: Any) -> Any:
    """Return a table as a list of rows, its index as columns; columns of two parts go by their last."""
    if frame is None:
        return []
    if frame.columns.nlevels > 1:
        frame.columns = [name[-1] for name in frame.columns]
        frame = frame.reset_index()
    return json.loads(frame.to_json(orient="records"))


def answers(folder: str) -> dict[str, Any]:
    analysis = TraceAnalysis(trace_dir=folder, include_last_profiler_step=True)
    ranks = list(analysis.t.get_ranks())

    def kernels() -> Any:
        kinds, each = analysis.get_gpu_kernel_breakdown(
            visualize=False, include_memory_kernels=True, num_kernels=10_000, duration_ratio=1.0
        )
        return {"kinds": rows(kinds), "each": rows(each)}

    def launches() -> Any:
        by_rank = analysis.get_cuda_kernel_launch_stats(ranks=ranks, visualize=False)
        return [
            {
                "rank": rank,
                "count": len(found),
                "call_us": float(found.cpu_duration.sum()),
                "call_median_us": float(found.cpu_duration.median()) if len(found) else None,
                "work_us": float(found.gpu_duration.sum()),
                "delay_us": float(found.launch_delay.sum()),
                "delay_max_us": float(found.launch_delay.max()) if len(found) else None,
                "short": int((found.gpu_duration < found.cpu_duration).sum()),
            }
            for rank, found in by_rank.items()
        ]

    questions: dict[str, Callable[[], Any]] = {
        "temporal": lambda: rows(analysis.get_temporal_breakdown(visualize=False)),
        "overlap": lambda: rows(analysis.get_comm_comp_overlap(visualize=False)),
        "idle": lambda: rows(analysis.get_idle_time_breakdown(ranks=ranks, visualize=False)[0]),
        "kernels": kernels,
        "bandwidth": lambda: rows(analysis.get_memory_bw_summary(ranks=ranks)),
        "queue": lambda: rows(analysis.get_queue_length_summary(ranks=ranks)),
        "launches": launches,
    }
    return {"ranks": ranks} | {name: ask() for name, ask in questions.items()}


def attempt(folder: str) -> dict[str, Any]:
    """Return the answers, or what it raised."""
    try:
        return answers(folder)
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return {"raised": repr(error)}


if __name__ == "__main__":
    json.dump({folder: attempt(folder) for folder in sys.argv[1:]}, sys.stdout)
