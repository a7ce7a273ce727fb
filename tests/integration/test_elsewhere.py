"""Jobs whose output goes to a real S3 server, over networks that work and that do not."""

from __future__ import annotations

import json
import urllib.request
import uuid

import pytest
from jobs import BIN, REPOSITORY, SCRIPTS, read_trace, run_job, step_numbers
from s3 import (
    KEY_ID,
    SECRET,
    Bucket,
    Proxy,
    drop_half_way,
    every_byte,
    hang,
    pass_on,
    s3_server,
    user_folder,
)

from autoprof.run import layout, steps

pytest.importorskip("s3fs")
pytest.importorskip("moto.server")
pytestmark = pytest.mark.xdist_group("s3")

TRAIN = REPOSITORY / "examples" / "train.py"
PACED = SCRIPTS / "paced.py"


@pytest.fixture(scope="module")
def server():
    with s3_server() as port:
        yield port


@pytest.fixture
def bucket(server):
    return Bucket(server, f"bucket-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return run_job(tmp_path_factory.mktemp("expected"), TRAIN, enable=False)


@pytest.fixture
def scratch(tmp_path):
    return tmp_path / "scratch"


@pytest.fixture
def upload_job(launch, bucket, scratch, tmp_path):
    """Run a job with the bucket as its place; whatever comes of it, its secret shows nowhere."""

    def run(*command, port=0, env=None, **options):
        base = {"ACCELPROF_SCRATCH_DIR": str(scratch), "ACCELPROF_EXIT_TIMEOUT": "60"}
        job = bucket.environment(port) | base | (env or {})
        outcome = launch(*(command or (TRAIN,)), env=job, **options)
        bucket.download(tmp_path / "downloaded")
        for path, content in every_byte(tmp_path):
            assert SECRET.encode() not in content, path
        assert not [line for line in outcome.said if "fault" in line]
        return outcome

    return run


def names_without_stamps(names):
    """Reduce names in a bucket to what does not change from run to run."""
    return sorted({name.partition("/")[2].partition(".")[0] for name in names})


def local(scratch):
    return sorted(path.name for path in scratch.rglob("*") if path.is_file())


def test_a_run_arrives_whole_and_nothing_stays(upload_job, bucket, scratch, expected, tmp_path):
    script = tmp_path / "with_options.py"
    script.write_text(
        f"import runpy, sys\nsys.argv = sys.argv[:1]\nrunpy.run_path({str(TRAIN)!r}, run_name='__main__')\n"
    )
    outcome = upload_job(script, "--token", SECRET, f"hub.key={SECRET}", f"--note=x{SECRET}x")
    assert (outcome.status, outcome.stdout) == (0, expected.stdout), outcome.stderr
    trace_name, *_ = (name for name in bucket.names() if name.endswith(".gz"))
    run = trace_name.partition("/")[0]
    assert outcome.said[0].endswith(f"into s3://{bucket.name}/runs/{run}")
    assert outcome.said[1] == f"autoprof: rank 0 recorded steps 7-9: s3://{bucket.name}/runs/{trace_name}"
    assert "the input pipeline" in outcome.said[2]
    assert f"into s3://{bucket.name}/runs/{run}; training" in outcome.said[3]
    assert len(outcome.said) == 4
    assert (local(scratch), list(user_folder(scratch).glob("*"))) == ([], [])
    downloaded = tmp_path / "downloaded" / run
    (trace,) = layout.find_traces(downloaded)
    assert step_numbers(read_trace(trace.path)) == [7, 8, 9]
    manifest = json.loads((downloaded / "run.json").read_text())
    assert manifest["steps"] == 20
    (step_file,), _ = steps.find(downloaded)
    assert len(steps.read(step_file).records) == 20
    assert manifest["command"][-4:] == ["--token", "***", "hub.key=***", "--note=x***x"]
    (capture,) = json.loads((downloaded / "ranks/rank00000.json").read_text())["captures"]
    assert capture["trace"] == trace_name.partition("/")[2]


@pytest.mark.parametrize(
    "fault", ["refused", "hang", "drop half-way", "no credentials", "no bucket", "no backend"]
)
def test_what_does_not_arrive_stays_and_is_named(upload_job, bucket, server, scratch, expected, fault):
    behave = {"hang": hang, "drop half-way": drop_half_way}.get(fault, pass_on)
    proxy = Proxy(server, behave)
    env = {"ACCELPROF_EXIT_TIMEOUT": "4"}
    if fault == "refused":
        proxy.close()
    elif fault == "no credentials":
        env |= {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_EC2_METADATA_DISABLED": "true"}
    elif fault == "no bucket":
        env |= {"ACCELPROF_OUTPUT_DIR": f"s3://me:{SECRET}@no-such-bucket/runs?token={SECRET}"}
    elif fault == "no backend":
        env |= {"ACCELPROF_OUTPUT_DIR": f"nonsense://me:{SECRET}@host/runs?token={SECRET}"}
    outcome = upload_job(port=proxy.port, env=env)
    assert (outcome.status, outcome.stdout) == (0, expected.stdout), outcome.stderr
    assert bucket.names() == []
    (run,) = layout.find_runs(user_folder(scratch))
    (trace,) = layout.find_traces(run)
    assert step_numbers(read_trace(trace.path)) == [7, 8, 9]
    assert (run / "run.json").is_file()
    assert (run / "ranks/rank00000.json").is_file()
    assert f"into {run}; training was held up" in outcome.said[-1]
    reasons = {"no backend": "not known", "no bucket": "bucket", "no credentials": "NoCredentialsError"}
    reason = reasons.get(fault, "upload")
    assert any(str(run) in line and reason in line for line in outcome.said[1:-1]), outcome.said
    proxy.close()


def test_keys_that_are_refused_are_not_shown(launch, bucket, server, scratch, expected, tmp_path):
    def check_keys_after(requests):
        address = f"http://127.0.0.1:{server}/moto-api/reset-auth"
        plain = {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(address, data=requests, headers=plain)).read()

    env = {"ACCELPROF_SCRATCH_DIR": str(scratch), "ACCELPROF_EXIT_TIMEOUT": "10"}
    check_keys_after(b"0")
    try:
        outcome = launch(TRAIN, env=bucket.environment() | env)
    finally:
        check_keys_after(b"inf")
    assert (outcome.status, outcome.stdout) == (0, expected.stdout), outcome.stderr
    assert bucket.names() == []
    assert any("4 files have not been uploaded" in line and "Forbidden" in line for line in outcome.said), (
        outcome.said
    )
    for path, content in every_byte(tmp_path):
        assert SECRET.encode() not in content, path
        assert KEY_ID.encode() not in content, path


def test_a_network_that_fails_at_first_is_tried_again(upload_job, bucket, server, scratch, expected):
    def fail_at_first(client, upstream):
        (drop_half_way if proxy.connections <= 4 else pass_on)(client, upstream)

    proxy = Proxy(server, fail_at_first)
    outcome = upload_job(port=proxy.port)
    assert (outcome.status, outcome.stdout) == (0, expected.stdout), outcome.stderr
    assert proxy.connections > 4
    assert names_without_stamps(bucket.names()) == [
        *("ranks/rank00000", "run", "step_00000007/rank00000", "steps/rank00000")
    ]
    assert local(scratch) == []
    assert "/runs/" in outcome.said[-1]
    proxy.close()


def test_two_ranks_upload_their_own(upload_job, bucket, scratch):
    outcome = upload_job(TRAIN, ranks=2)
    assert outcome.status == 0, outcome.stderr
    assert names_without_stamps(bucket.names()) == [
        *("ranks/rank00000", "ranks/rank00001", "run"),
        *("step_00000007/rank00000", "step_00000007/rank00001"),
        *("steps/rank00000", "steps/rank00001"),
    ]
    assert local(scratch) == []


def test_two_runs_under_one_id_keep_theirs_and_old_captures_go(upload_job, bucket, scratch):
    theirs = "same/step_00000004/rank00000.theirs_1.1.pt.trace.json"
    bucket.write(theirs, b"{}")
    env = {"ACCELPROF_RUN_ID": "same", "ACCELPROF_KEEP": "2", "ACCELPROF_STEPS": "2,4,6,8"}
    assert upload_job(PACED, 12, 0.05, env=env).status == 0
    first = bucket.names()
    captures = [name.split("/")[1] for name in first if "/step_" in name]
    assert captures == ["step_00000004", "step_00000006", "step_00000008"]
    assert theirs in first
    contents = {name: bucket.read(name) for name in first}
    assert upload_job(PACED, 12, 0.05, env=env).status == 0
    assert {name: bucket.read(name) for name in first} == contents
    added = sorted(set(bucket.names()) - set(first))
    assert names_without_stamps(added) == [
        *("ranks/rank00000", "run", "step_00000006/rank00000", "step_00000008/rank00000", "steps/rank00000")
    ]
    assert local(scratch) == []


def test_check_and_traces_speak_of_the_place(launch, bucket, upload_job, server):
    assert upload_job().status == 0
    environment = bucket.environment()
    left = bucket.names()
    seen = launch(BIN / "autoprof", "check", by="python", env=environment)
    assert seen.status == 0, seen.stdout + seen.stderr
    assert f"output       {bucket.url}\n" in seen.stdout
    assert bucket.names() == left
    listed = launch(BIN / "autoprof", "traces", bucket.url, by="python", env=environment)
    (name,) = (name for name in left if name.endswith(".gz"))
    assert (
        f"from step 7  rank 0  {len(bucket.read(name)) / 1000:,.0f} kB  {bucket.url}/{name}" in listed.stdout
    )
    wrong = environment | {"ACCELPROF_OUTPUT_DIR": f"s3://me:{SECRET}@no-such-bucket/x"}
    seen = launch(BIN / "autoprof", "check", by="python", env=wrong)
    assert seen.status == 1
    assert "problem      ACCELPROF_OUTPUT_DIR: 's3://***@no-such-bucket/x' cannot be written" in seen.stdout
    assert SECRET not in seen.stdout + seen.stderr
    proxy = Proxy(server, hang)
    strict = environment | {"ACCELPROF_STRICT": "1", "ACCELPROF_OUTPUT_DIR": "s3://no-such-bucket/x"}
    outcome = launch(TRAIN, env=strict)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert "cannot be written" in outcome.stderr
    proxy.close()
