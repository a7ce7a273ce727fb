"""What is said reaches stderr whole, and a stderr that takes nothing leaves the job as it was."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from sandbox import bare_environ

SAY = "from autoprof.agent.guard import say; import io, os, sys; {}; say('one line'); {}"


def _run(prepare: str, then: str = "print('done')") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SAY.format(prepare, then)]
    return subprocess.run(command, env=bare_environ(), capture_output=True, text=True, check=False)


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
    finished = _run("sys.__stderr__ = io.StringIO()", "print(sys.__stderr__.getvalue(), end='')")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "autoprof: one line\n", "")


def test_a_long_line_arrives_whole_through_a_pipe() -> None:
    reading, writing = os.pipe()
    code = "from autoprof.agent.guard import say; say('x' * 300_000)"
    with subprocess.Popen([sys.executable, "-c", code], stderr=writing) as process, open(reading) as pipe:
        os.close(writing)
        assert pipe.read() == "autoprof: " + "x" * 300_000 + "\n"
        assert process.wait(60) == 0
