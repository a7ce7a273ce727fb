"""Opens one capture's directory in HolisticTraceAnalysis and prints what it found as JSON.

open_hta.py STEP_DIRECTORY
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings

from hta.trace_analysis import TraceAnalysis

warnings.filterwarnings("ignore")


class Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def main() -> None:
    messages = Messages()
    logging.getLogger("hta").addHandler(messages)
    # The last step is left out by default, for the sake of kernels that run on after it.
    analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)

    trace = analysis.t
    trace.decode_symbol_ids()
    found = {
        "about_ranks": [line for line in messages.lines if "default to rank" in line or "same rank" in line],
        "steps": [int(step) for step in analysis.get_profiler_steps()],
        "ranks": {
            rank: {
                "file": os.path.basename(trace.trace_files[rank]),
                "distributed_info": trace.meta_data[rank]["distributedInfo"],
                "backward": int((trace.get_trace(rank)["s_name"] == "Accelerator.backward").sum()),
            }
            for rank in trace.get_ranks()
        },
        "overlap_ranks": [int(rank) for rank in analysis.get_comm_comp_overlap(visualize=False)["rank"]],
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
