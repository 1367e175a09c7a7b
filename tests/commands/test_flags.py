"""Flags say what the fields say that they fill."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import steadyscore
from steadyscore.cli import VERBS, main, parser
from steadyscore.collection import Source, open_collection
from steadyscore.commands.flags import (
    above_zero,
    add_field,
    add_fields,
    field_texts,
    from_flags,
    mode_mistakes,
    not_negative,
    positive,
    scorers_by_name,
)
from steadyscore.commands.shared import config_of, engine_options
from steadyscore.engines import EngineOptions
from steadyscore.machine.bounds import BelowOne, Positive, Share
from steadyscore.scoring.config import AuditConfig, Cut
from steadyscore.scoring.parts import Cluster
from steadyscore.scoring.scorer import Settings
from steadyscore.training.labelling import LabelConfig
from steadyscore.training.recipe import TrainConfig
from steadyscore.training.train import read_config


@dataclass(frozen=True, slots=True)
class Kitchen:
    """A dataclass with a field of every kind."""

    ovens: Positive = 2
    """Ovens that are hot
    at once."""
    heat: Literal["gas", "wood"] | None = None
    """What burns (default: what there is)."""
    salt: BelowOne | None = None
    """Share of salt, 100 % at most."""
    open: bool = True
    """Whether guests may come in."""
    spicy: bool = False
    """LoRA on the chillies."""
    names: tuple[str, ...] = ("ann", "bo")
    """Who cooks."""


def read(*words: str, **how) -> argparse.Namespace:
    words_of = argparse.ArgumentParser()
    add_fields(words_of, Kitchen, "ovens heat salt open spicy names", **how)
    return words_of.parse_args(words)


def test_a_dataclass_comes_back_from_its_flags():
    assert from_flags(Kitchen, read()) == Kitchen()
    typed = read("--ovens", "3", "--heat", "wood", "--salt", "0.5", "--no-open", "--spicy", "--names", "cy,di,ed")
    assert from_flags(Kitchen, typed) == Kitchen(3, "wood", 0.5, False, True, ("cy", "di", "ed"))
    assert set(vars(read(is_unset=True)).values()) == {None}


def test_what_a_mode_does_not_read_must_stand_at_its_default():
    def arguments(words):
        add_fields(words, Kitchen, "ovens heat salt open spicy names")

    assert mode_mistakes("--cold", arguments, read("--ovens", "2"), ()) == []
    typed = read("--ovens", "3", "--no-open", "--spicy", "--names", "cy")
    assert mode_mistakes("--cold bakes nothing", arguments, typed, ("names",)) == [
        "--cold bakes nothing; leave out --ovens, --no-open, --spicy."
    ]


def test_the_help_is_the_docstring_of_the_field_and_its_default():
    words = argparse.ArgumentParser()
    add_fields(words, Kitchen, "ovens heat salt open spicy names")
    shown = " ".join(words.format_help().split())
    for text in (
        "--ovens N ovens that are hot at once (default: 2)",
        "--heat {gas,wood} what burns (default: what there is)",
        "--salt X share of salt, 100 % at most",
        "--no-open whether guests may come in",
        "--spicy LoRA on the chillies",
        "--names NAME,... who cooks (default: ann,bo)",
    ):
        assert text in shown


def test_what_is_given_replaces_what_the_field_says():
    words = argparse.ArgumentParser()
    add_field(words, Kitchen, "ovens", flag="--stoves", metavar="S", help="other words")
    assert "--stoves S other words" in " ".join(words.format_help().split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ovens", "0"], "argument --ovens: 0 is not above 0"),
        (["--ovens", "many"], "argument --ovens: invalid int value: 'many'"),
        (["--heat", "sun"], "argument --heat: invalid choice: 'sun'"),
        (["--salt", "1"], "argument --salt: 1 is not below 1"),
        (["--salt", "inf"], "argument --salt: inf is not a finite number"),
    ],
)
def test_a_wrong_value_is_wrong_usage(words, message, capsys):
    with pytest.raises(SystemExit) as stop:
        read(*words)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


@given(st.integers())
def test_whole_numbers_are_taken_within_their_bounds_and_nowhere_else(value):
    for convert, is_good in ((positive, value > 0), (not_negative, value >= 0)):
        if is_good:
            assert convert(str(value)) == value
        else:
            with pytest.raises(argparse.ArgumentTypeError):
                convert(str(value))


@given(st.floats())
def test_numbers_are_taken_within_their_bounds_and_nowhere_else(value):
    if 0 < value < float("inf"):
        assert above_zero(repr(value)) == value
    else:
        with pytest.raises(argparse.ArgumentTypeError):
            above_zero(repr(value))


@given(st.floats(allow_nan=False))
def test_pydantic_and_the_flags_know_the_same_bounds(value):
    from pydantic import TypeAdapter, ValidationError

    from steadyscore.commands.flags import converter

    for kind in (Share, BelowOne):
        try:
            TypeAdapter(kind).validate_python(value)
            is_good = True
        except ValidationError:
            is_good = False
        try:
            converter(kind)(repr(value))
            assert is_good
        except argparse.ArgumentTypeError:
            assert not is_good


@pytest.mark.parametrize("kind", [TrainConfig, LabelConfig, Cut])
def test_every_field_of_these_has_a_text(kind):
    assert set(kind.__dataclass_fields__) == set(field_texts(kind))


def test_flags_of_every_verb_say_what_they_do():
    for verb in VERBS:
        sub = parser(verb)._subparsers._group_actions[0].choices[verb]
        silent = [action.option_strings for action in sub._actions if action.option_strings and not action.help]
        assert not silent, verb


def test_the_defaults_of_the_shared_flags_are_those_of_their_dataclasses():
    args = parser("audit").parse_args(["audit"])
    for kind in (Settings, EngineOptions, AuditConfig, Cut):
        for name, field in kind.__dataclass_fields__.items():
            if hasattr(args, name) and name not in ("chars", "watch", "mitigations", "readers"):
                assert getattr(args, name) == field.default, name


@pytest.mark.parametrize(
    ("typed", "name", "address"),
    [
        ("oc=smollm2-135m+adapters/oc", "oc", "smollm2-135m+adapters/oc"),
        ("mine=command:env A=1 python score.py", "mine", "command:env A=1 python score.py"),
        ("command:env A=1 python score.py", None, None),
        ("rerank:http://localhost/v1?model=m", None, None),
        ("smollm2-135m+rate=5", None, None),
        ("folder/of=mine", None, None),
        ("steady 2=synthetic:none", "steady 2", "synthetic:none"),
        ("c+d=synthetic:none", "c+d", "synthetic:none"),
    ],
    ids=["adapter", "program-named", "program", "query-string", "adapter-folder", "folder", "blank", "plus"],
)
def test_a_scorer_has_the_name_before_the_first_sign_unless_that_is_a_part_of_its_address(typed, name, address):
    assert scorers_by_name([typed]) == {name or typed: address or typed}


# -- data as people have it


@pytest.fixture
def table(tmp_path):
    """A CSV whose texts nobody would recognise."""
    lines = [f"why {q},{q}-{d} {'word ' * d},{int(d == q)},{9 - d}" for q in range(4) for d in range(4)]
    (file := tmp_path / "mine.csv").write_text("\n".join(["question,body,label,bm25", *lines]) + "\n")
    return str(file)


NAMED = ("--columns", "text=body")


def test_every_verb_that_opens_data_takes_a_table_and_the_names_of_its_columns(table, tmp_path, capfd):
    for verb, *flags in (
        ("audit", "--scorer", "synthetic:slot", "--permutations", "2", "--no-report", "--out", tmp_path / "run"),
        ("score", "--scorer", "synthetic:none", "--format", "trec", "--out", tmp_path / "mine.run"),
        ("label", "--scorer", "judgements", "--out", tmp_path / "labels"),
        ("study width", "--scorer", "synthetic:slot", "--width", "2", "--permutations", "2", "--out", tmp_path / "width"),
        ("study attack", "--scorer", "synthetic:companion", "--no-report", "--out", tmp_path / "attack"),
    ):
        words = [*verb.split(), "--data", table, *map(str, flags)]
        assert main(words) == 1, verb
        assert (
            f"steadyscore: {table}: no column is recognised as text among question, body, label, bm25" in capfd.readouterr().err
        )
        assert main([*words, *NAMED]) == 0, verb
    assert len((tmp_path / "mine.run").read_text().splitlines()) == 16
    found = steadyscore.load(tmp_path / "run")[0].source  # opened again, with the names that were given
    assert [len(instance.pool) for instance in found.instances()] == [4, 4, 4, 4]


def test_the_data_verbs_take_them_too(table, tmp_path, capfd):
    assert main(["data", "check", table]) == 1
    assert main(["data", "check", table, *NAMED]) == 0
    assert main(["data", "show", table, *NAMED, "--json"]) == 0
    assert main(["data", "export", table, *NAMED, "--format", "jsonl", "--out", str(tmp_path / "x.jsonl")]) == 0
    again = open_collection(tmp_path / "x.jsonl")
    assert list(again.instances()) == list(open_collection(table, {"text": "body"}).instances())
    assert again.collection.name == "mine"


def test_columns_that_say_nothing_are_wrong_usage(table, capfd):
    with pytest.raises(SystemExit, match="2"):
        main(["audit", "--scorer", "synthetic:none", "--data", table, "--columns", "text"])
    assert "Write it as query=question,text=body" in capfd.readouterr().err


@pytest.mark.parametrize(
    "make", [pd.read_csv, lambda file: open_collection(file, {"text": "body"}), str], ids=["frame", "source", "file"]
)
def test_training_takes_rows_and_tables(make, table, tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    data = make(table)
    columns = None if isinstance(data, Source) else {"text": "body"}
    config = read_config(None, {"base": "smollm2-135m", "data": data, "labels": "judgements", "out": "x"}, columns)
    assert list(open_collection(config.data).instances()) == list(open_collection(table, {"text": "body"}).instances())
    assert read_config(None, {"data": Path(table)}).data == table


def test_an_audit_has_at_most_forty_flags():
    flags = [
        action for action in parser("audit")._subparsers._group_actions[0].choices["audit"]._actions if action.option_strings
    ]
    assert len(flags) <= 40


AUDIT = "audit --scorer openai:m@http://localhost:1/v1 --data passages --out runs"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--dtype bfloat16", "--dtype is now --set dtype=VALUE."),
        ("--no-cache --price 1 2", "--no-cache is now --set cache=no. --price is now --set price=VALUE."),
        ("--keep-first 3", "--keep-first is now --keep K."),
        ("--reader-decoding greedy", "--reader-decoding is now left out: verdicts are decoded as in the paper."),
        ("--on ray --actors 3", "--actors is now --on ray,actors=N."),
        ("--hours 3", "--dry-run tells the time of one worker"),
        ("--set dtyp=float32", "there is no setting 'dtyp'; did you mean dtype?"),
        ("--set xyzzy=1", "there is no setting 'xyzzy'; there are allow_base_mismatch, batch_tokens"),
        ("--set dtype=float8", "argument --set dtype: invalid choice: 'float8'"),
        ("--set cache=maybe", "argument --set cache: maybe is neither yes nor no"),
        ("--set rate", "write rate=VALUE."),
        ("--set ir=P@5 --set ir=P@3", "write ir=FIRST,SECOND."),
        ("--set price=1", "1 is not the price of a million prompt and written tokens, such as 0.15,0.6"),
        ("--keep 1.5", "1.5 is not a share"),
        ("--keep 5 --cutoff 0.5", "not allowed with argument --keep"),
        ("--on ray,actors=0", "actors=0 is not what an actor takes"),
    ],
)
def test_what_is_gone_or_misspelt_is_answered_with_what_to_type(words, said, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*AUDIT.split(), *words.split()])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def test_settings_are_what_flags_of_their_own_would_be():
    words = "--set price=0.15,0.6 --set cache=no --set scheme=hashed --set ir=P@5,P@3 --set rate=6 --set rate=9 --keep 0.2"
    args = parser("audit").parse_args([*AUDIT.split(), *words.split()])
    options, config = engine_options(args), config_of(args)
    assert (options.price, options.cache, options.rate, options.retries) == ((0.15, 0.6), False, 9, 5)
    assert (config.scheme, config.ir, config.threshold.keep_share, config.threshold.keep_first) == (
        "hashed",
        ("P@5", "P@3"),
        0.2,
        None,
    )
    assert parser("audit").parse_args([*AUDIT.split(), "--on", "ray:auto,actors=2,gpus=0.5"]).on == Cluster("auto", 2, 1, 0.5)
