"""Credentials never show, and what is no credential does."""

from __future__ import annotations

import json

import pytest

from autoprof import redact, settings

SECRET = "s3cr/et@pass"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/folder", "s3://bucket/folder"),
        (f"s3://key:{SECRET}@bucket/folder", "s3://***@bucket/folder"),
        ("https://t0ken@host/x?sig=abc&v=1#frag", "https://***@host/x?***"),
        (
            "abfs://container@account.dfs.core.windows.net/x",
            "abfs://container@account.dfs.core.windows.net/x",
        ),
        ("hf://datasets/user/name@main/x", "hf://datasets/user/name@main/x"),
        ("simplecache::ftp://u:p@host/x", "simplecache::ftp://***@host/x"),
        ("/plain/path@5", "/plain/path@5"),
    ],
)
def test_a_url_shows_where_and_not_with_what(url, shown):
    assert redact.url(url) == shown


@pytest.mark.parametrize(
    "argv",
    [
        ["--token", SECRET],
        [f"--hub_token={SECRET}"],
        ["--wandb-api-key", SECRET],
        [f"trainer.hub.token={SECRET}"],
        [f'{{"apiKey": "{SECRET}", "lr": 1}}'],
        [f"Authorization: Bearer {SECRET}"],
        [f"https://me:{SECRET}@host/path"],
        ["-c", f"import os; os.environ['HF_TOKEN'] = '{SECRET}'"],
        ["--note", f"it is {SECRET}"],  # known from the environment
    ],
)
def test_no_form_of_a_secret_stays_in_a_command_line(argv):
    shown = redact.command(["python", "train.py", *argv, "--lr", "0.1"], {"DB_PASSWORD": SECRET})
    assert SECRET not in json.dumps(shown)
    assert shown[:2] == ["python", "train.py"]
    assert shown[-2:] == ["--lr", "0.1"]


def test_what_only_looks_alike_stays():
    argv = ["--tokenizer", "gpt2", "--max_tokens=512", "--author", "me", "--monkey", "x", "/work/dir"]
    assert redact.command(argv, {"PWD": "/work/dir", "TOKENIZERS_PARALLELISM": "/work/dir"}) == argv


def test_tokens_are_known_by_their_shape():
    argv = ["hf_" + "a1B2" * 8, "AKIAIOSFODNN7EXAMPLE", "ghp_" + "x" * 36]
    assert redact.command(argv, {}) == ["***"] * 3


def test_an_error_text_shows_nothing_of_the_url():
    url = "webdav://me:s3cr%2Fet@host/x?token=abcdef"
    line = redact.text("no access for me with s3cr/et or s3cr%2Fet, token=abcdef, abcdef", {}, url)
    assert "abcdef" not in line
    assert "s3cr" not in line


def test_settings_are_described_without_credentials():
    place = f"s3://key:{SECRET}@bucket/x"
    resolved = settings.resolve({"ACCELPROF_OUTPUT_DIR": place})
    assert resolved.settings.output_dir == place
    assert SECRET not in json.dumps(settings.describe(resolved.settings))
    (problem,) = settings.resolve({"ACCELPROF_ACTIVE": place}).problems
    assert SECRET not in problem


@pytest.mark.parametrize("place", ["s3://", "://x", "s3:///"])
def test_half_a_url_is_refused(place):
    (problem,) = settings.resolve({"ACCELPROF_OUTPUT_DIR": place}).problems
    assert "expected a path, or a URL" in problem
