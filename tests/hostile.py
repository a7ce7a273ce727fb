"""A run whose every name tries to become markup, script, a template or a spreadsheet's formula."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from traces import document, kernel, slice_, step

from autoprof.run import layout

NAMES = [
    "<script>window.pwned = 'script'</script>",
    "</script><script>window.pwned = 'closed'</script>",
    "<!--<script>",
    "<img src=x onerror=\"window.pwned = 'img'\">",
    '"><svg onload="window.pwned = \'svg\'">',
    "' onmouseover='window.pwned = 1",
    "{{ 7 * 7 }}{% raw %}",
    "${window.pwned = 'template'}",
    "datum.pwned = 1",
    "javascript:alert(1)",
    '=HYPERLINK("http://evil.example","x")',
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "+1-1",
    "-2+3",
    '"quoted", and, comma',
    "&lt;b&gt;already&amp;escaped",
    "right\u202eleft",
    "half a pair \ud800",
    "bell\x07and\x00null\nand line\rreturn\u2028separator",
    "x" * 4000,
]
FORMULAS = "=+-@"


def write_run(folder: Path) -> Path:
    """Write a run of two ranks with steps 7 and 8 on CPU and device, and return its directory."""
    run = folder / "run <b>"
    for rank in (0, 1):
        events: list[dict[str, Any]] = []
        for number in (7, 8):
            start = 10_000.0 * number
            events += [
                step(number, start, 8000 + 500 * rank),
                *(
                    slice_(name, start + at, length, cat="user_annotation")
                    for name, at, length in (
                        ("enumerate(DataLoader)#_Iter.__next__", 100, 700),
                        ("DistributedDataParallel.forward", 1000, 2000),
                        ("Accelerator.backward", 3200, 3000),
                        ("AcceleratedOptimizer.step", 6300, 1000),
                    )
                ),
                kernel("ncclDevKernel_AllReduce_Sum_f32", start + 5000, 1200 - 300 * rank, stream=20),
                slice_("aten::mm", start + 1100, 300),
                slice_("aten::add", start + 1500, 100),
                slice_("aten::add", start + 1700, 100),
            ]
            events += [slice_(name, start + 2000 + 10 * at, 5) for at, name in enumerate(NAMES)]
            events += [kernel(name, start + 1200 + 20 * at, 15) for at, name in enumerate(NAMES)]
        content = document(
            events,
            rank,
            host_name=NAMES[rank],
            autoprof={"partial": rank == 1},
            deviceProperties=[{"id": 0, "name": NAMES[3]}],
        )
        capture = layout.capture_dir(run, 7)
        capture.mkdir(parents=True, exist_ok=True)
        (capture / layout.trace_name(rank, "host", 9, 1, gzip=False)).write_text(json.dumps(content))
        (run / layout.RANKS).mkdir(exist_ok=True)
        layout.rank_file(run, rank).write_text(
            json.dumps(
                {
                    "rank": rank,
                    "host": NAMES[0],
                    "steps": 20,
                    "missed": NAMES,
                    "faults": [{"what": name} for name in NAMES],
                    "cost": {"blocked_s": 0.25 + rank, "recorded_step_to_usual_step": 1.5, "bytes": 123_456},
                }
            )
        )
    (run / layout.MANIFEST).write_text(
        json.dumps(
            {
                "run_id": NAMES[0],
                "command": NAMES,
                "directory": NAMES[1],
                "started_at": NAMES[2],
                "plan": NAMES[4],
                "world_size": 2,
                "steps": 20,
                "settings": {"ACCELPROF_RUN_ID": NAMES[5]},
                "versions": {NAMES[6]: NAMES[7]},
            }
        )
    )
    return run
