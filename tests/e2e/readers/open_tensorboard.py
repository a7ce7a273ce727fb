"""Serves a folder with TensorBoard and prints what the PyTorch profiler plugin shows of it as JSON.

open_tensorboard.py LOGDIR RUNS

RUNS is the number of runs to wait for: the plugin loads them in the background.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
import urllib.parse
import urllib.request
from typing import Any

from tensorboard import program

TIMEOUT_S = 90
http = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main() -> None:
    logdir, expected = sys.argv[1], int(sys.argv[2])
    server = program.TensorBoard()
    server.configure(argv=["tensorboard", "--logdir", logdir, "--host", "127.0.0.1", "--port", "0"])
    url = server.launch() + "data/plugin/pytorch_profiler/"

    def get(route: str, **query: str) -> Any:
        with http.open(f"{url}{route}?{urllib.parse.urlencode(query)}", timeout=TIMEOUT_S) as response:
            body = response.read()
            packed = response.headers.get("Content-Encoding") == "gzip"
            return json.loads(gzip.decompress(body) if packed else body)

    end = time.monotonic() + TIMEOUT_S
    runs = get("runs")
    while (runs["loading"] or len(runs["runs"]) < expected) and time.monotonic() < end:
        time.sleep(0.1)
        runs = get("runs")

    found = {}
    for run in runs["runs"]:
        workers = get("workers", run=run, view="Overview")
        found[run] = {"views": get("views", run=run), "workers": {}}
        for worker in workers:
            spans = get("spans", run=run, worker=worker)
            which = {"run": run, "worker": worker, "span": spans[0]}
            overview = get("overview", **which)
            operators = get("operation/table", group_by="Operation", **which)
            found[run]["workers"][worker] = {
                "spans": spans,
                "steps": [row[0] for row in overview["steps"]["rows"]],
                "environments": {row["title"]: row["value"] for row in overview["environments"]},
                "operators": [row["name"] for row in operators["data"]],
                "trace_rank": get("trace", **which)["distributedInfo"]["rank"],
            }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
