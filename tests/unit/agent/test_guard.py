"""What is said reaches stderr whole, and a stderr that takes nothing leaves the job as it was."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SAY = "import os, sys; from autoprof.agent.guard import say; {}; say('one line'); print('done')"


def _run(prepare: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SAY.format(prepare)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    "prepare",
    [
        "os.close(2)",
        "sys.stderr.close()",
        "sys.stderr = sys.__stderr__ = None",
        "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)",
        "os.dup2(os.open('/dev/null', os.O_RDONLY), 2)",
    ],
)
def test_a_stderr_that_takes_nothing_leaves_the_status_of_the_process(prepare: str) -> None:
    finished = _run(prepare)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "done\n", "")


def test_a_line_follows_what_the_script_has_not_flushed_yet() -> None:
    finished = _run("sys.stderr.write('unfinished ')")
    assert finished.stderr == "unfinished autoprof: one line\n"


def test_a_stream_without_a_descriptor_gets_the_line_too() -> None:
    code = (
        "import io, sys; from autoprof.agent.guard import say; sys.__stderr__ = io.StringIO(); "
        "say('one line'); "
        "print(sys.__stderr__.getvalue(), end='')"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "autoprof: one line\n", "")


def test_a_long_line_arrives_whole_through_a_pipe() -> None:
    reading, writing = os.pipe()
    code = "from autoprof.agent.guard import say; say('x' * 300_000)"
    with subprocess.Popen([sys.executable, "-c", code], stderr=writing) as process, open(reading) as pipe:
        os.close(writing)
        assert pipe.read() == "autoprof: " + "x" * 300_000 + "\n"
        assert process.wait(60) == 0
