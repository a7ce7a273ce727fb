"""The table of settings: what is accepted, what a mistake reads like, and that the docs are the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoprof import settings
from autoprof.cli import main
from autoprof.settings import SettingsError, load, resolve

REPOSITORY = Path(__file__).parents[2]


def load_one(name: str, value: str) -> settings.Settings:
    return load({f"ACCELPROF_{name}": value})


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("ACTIVE", "0", "a whole number of 1 or more"),
        ("ACTIVE", "-1", "a whole number of 1 or more"),
        ("ACTIVE", "three", "a whole number of 1 or more"),
        ("WARMUP", "1.5", "a whole number of 0 or more"),
        ("WARMUP", "٣", "a whole number of 0 or more"),
        ("STEPS", "9-7", "ascending step ranges"),
        ("STEPS", "1-3,3-4", "ascending step ranges"),
        ("STEPS", "1--3", "ascending step ranges"),
        ("RANKS", "x", "0-63:8"),
        ("RANKS", "0-7:0", "0-63:8"),
        ("RANKS", "local:", "0-63:8"),
        ("ACTIVITIES", "cpu,gpu", "cuda"),
        ("ACTIVITIES", "cpu,cpu", "cuda"),
        ("STEP_ON", "epoch", "micro-step"),
        ("ENABLE", "maybe", "1 or 0"),
        ("RUN_ID", "a/b", "letters, digits"),
        ("RUN_ID", "..", "letters, digits"),
        ("EXIT_TIMEOUT", "soon", "number of seconds"),
        ("COMPRESS", "rar", "gzip"),
    ],
)
def test_a_bad_value_is_one_line_with_name_value_and_what_is_accepted(name, value, accepted):
    with pytest.raises(SettingsError) as caught:
        load_one(name, value)
    (problem,) = caught.value.problems
    assert f"ACCELPROF_{name}={value!r}" in problem
    assert accepted in problem
    assert "\n" not in problem


@pytest.mark.parametrize(
    ("typo", "meant"), [("ENABEL", "ENABLE"), ("ENABLED", "ENABLE"), ("ACTVE", "ACTIVE"), ("STEP", "STEPS")]
)
def test_a_misspelt_name_gets_the_nearest_one(typo, meant):
    (problem,) = resolve({f"ACCELPROF_{typo}": "1"}).problems
    assert problem == f"ACCELPROF_{typo} is not a setting; did you mean ACCELPROF_{meant}?"


def test_a_name_that_resembles_nothing_is_pointed_to_the_list():
    assert resolve({"ACCELPROF_Q": "1"}).problems == [
        "ACCELPROF_Q is not a setting; `autoprof settings` lists them"
    ]


def test_each_mistake_is_reported():
    assert len(resolve({"ACCELPROF_ACTIVE": "x", "ACCELPROF_WAIT": "y"}).problems) == 2


def test_an_empty_variable_means_unset():
    assert load({"ACCELPROF_ACTIVE": "", "ACCELPROF_STEPS": " "}) == load({})


@pytest.mark.parametrize(
    ("ranks", "rank", "local_rank", "selected"),
    [
        ("all", 5, 1, True),
        ("0,3", 3, 0, True),
        ("0,3", 1, 0, False),
        ("0-7", 7, 3, True),
        ("0-7", 8, 0, False),
        ("0-63:8", 56, 0, True),
        ("0-63:8", 57, 1, False),
        ("local:0", 8, 0, True),
        ("local:0", 8, 1, False),
        ("2,local:0", 2, 2, True),
    ],
)
def test_ranks(ranks, rank, local_rank, selected):
    assert load_one("RANKS", ranks).ranks.selects(rank, local_rank) is selected


def test_steps():
    assert load_one("STEPS", "3,10-12").steps == ((3, 3), (10, 12))


class TestFile:
    def load(self, folder: Path, text: str, **environ: str) -> settings.Resolved:
        path = folder / "autoprof.toml"
        path.write_text(text)
        return resolve({"ACCELPROF_CONFIG": str(path), **environ})

    def test_the_environment_wins_over_the_file_and_the_file_over_the_default(self, tmp_path):
        lines = ["ACTIVE = 5", "WAIT = 7", 'STEPS = ["1-2", 9]', "WITH_STACK = true"]
        text = "\n".join(f"ACCELPROF_{line}" for line in lines)
        resolved = self.load(tmp_path, text, ACCELPROF_WAIT="8")
        assert resolved.problems == []
        values = resolved.settings
        assert (values.active, values.wait, values.with_stack, values.warmup) == (5, 8, True, 2)
        assert values.steps == ((1, 2), (9, 9))
        assert resolved.sources["ACCELPROF_ACTIVE"] == str(tmp_path / "autoprof.toml")
        assert resolved.sources["ACCELPROF_WAIT"] == "environment"
        assert resolved.sources["ACCELPROF_WARMUP"] == "default"

    def test_a_mistake_in_the_file_names_the_file(self, tmp_path):
        (problem,) = self.load(tmp_path, "ACCELPROF_ACTIVE = 0").problems
        assert "ACCELPROF_ACTIVE='0' in " in problem
        assert "autoprof.toml" in problem

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("ACCELPROF_ACTVE = 5", "did you mean ACCELPROF_ACTIVE?"),
            ("ACTIVE = 5", "did you mean ACCELPROF_ACTIVE?"),
            ('"ACCELPROF_\\nQ" = 5', "`autoprof settings` lists them"),
            ("[autoprof]\nACTIVE = 5", "`autoprof settings` lists them"),
        ],
    )
    def test_an_unknown_name_in_the_file_is_one_line_that_names_the_file(self, tmp_path, text, said):
        (problem,) = self.load(tmp_path, text).problems
        assert problem.endswith(f" in {tmp_path / 'autoprof.toml'} is not a setting; {said}")
        assert "\n" not in problem

    def test_nesting_that_no_parser_survives(self, tmp_path):
        (problem,) = self.load(tmp_path, "a = " + "[" * 20_000).problems
        assert str(tmp_path / "autoprof.toml") in problem

    @pytest.mark.parametrize("text", ["ACCELPROF_ACTIVE =", "\x00"])
    def test_a_file_that_is_no_toml(self, tmp_path, text):
        (problem,) = self.load(tmp_path, text).problems
        assert "is not valid TOML" in problem

    def test_bytes_that_are_no_text(self, tmp_path):
        (tmp_path / "autoprof.toml").write_bytes(b"\xff\xfe")
        (problem,) = resolve({"ACCELPROF_CONFIG": str(tmp_path / "autoprof.toml")}).problems
        assert "is not valid TOML" in problem

    def test_a_blank_name_means_no_file(self):
        assert resolve({"ACCELPROF_CONFIG": " "}) == resolve({})

    def test_blanks_around_the_name_are_not_part_of_it(self, tmp_path):
        (tmp_path / "autoprof.toml").write_text("ACCELPROF_ACTIVE = 5")
        assert load({"ACCELPROF_CONFIG": f" {tmp_path / 'autoprof.toml'} "}).active == 5

    def test_a_missing_file(self, tmp_path):
        (problem,) = resolve({"ACCELPROF_CONFIG": str(tmp_path / "none.toml")}).problems
        assert "cannot be read: No such file or directory" in problem


def test_every_example_is_accepted_and_every_default_is_what_it_says():
    for setting in settings.SETTINGS:
        setting.kind.parse(setting.example)
        if setting.default:
            assert setting.kind.parse(setting.default) == getattr(settings.Settings(), setting.field)


def test_no_value_needs_what_a_launcher_drops():
    for setting in settings.SETTINGS:
        assert not set(" ;<>\n") & set(setting.example)


def test_the_docs_page_is_the_table(capsys):
    assert main(["settings", "--markdown"]) == 0
    page = (REPOSITORY / "docs/settings.md").read_text()
    assert page[page.index("| setting") :] == capsys.readouterr().out


def test_json_has_every_setting(capsys):
    assert main(["settings", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == [setting.name for setting in settings.SETTINGS]
    assert all(row["help"] and row["accepts"] and row["example"] for row in rows)


def test_text_has_every_setting(capsys):
    assert main(["settings"]) == 0
    printed = capsys.readouterr().out
    assert all(setting.name in printed for setting in settings.SETTINGS)


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("0", 0), ("4096", 4096), ("500MB", 500_000_000), ("2gb", 2_000_000_000)]
)
def test_sizes_are_decimal(text, size_bytes):
    assert load({"ACCELPROF_MAX_BYTES": text}).max_bytes == size_bytes


@pytest.mark.parametrize("text", ["-1", "1.5GB", "GB", "5 GB", "5GiB"])
def test_other_sizes_are_refused(text):
    with pytest.raises(SettingsError, match="500MB or 20GB"):
        load({"ACCELPROF_MAX_BYTES": text})
