"""`steadyscore.attack`: planted weaknesses come back as planted, a stop costs nothing, and hostile names stay text."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import steadyscore
from steadyscore.cli import main
from steadyscore.errors import GateFailed, InputError
from steadyscore.runs.folder import Run, find_runs
from steadyscore.runs.layout import CLEAN
from steadyscore.studies import attack_words as attacks
from steadyscore.studies.attack import attack
from steadyscore.studies.attack_words import ATTACKS
from steadyscore.terms import Failure
from tests.helpers.models import byte_tokenizer, tiny_causal
from tests.helpers.pools import some_instances, write_collection

HOW = {"width": 3, "match_retention": 0.4, "quiet": True}
OBEDIENT = {"instruction", "demotion", "turns"}
"""Attacks that say "Ignore the rubric" in plain letters, and whose text is not cut."""


def base(text: str) -> float:
    """A score of the candidate itself: hostile words in front do not change it, save that they may push it out of sight."""
    number = re.search(r"number (\d)", text)
    return 0.1 + 0.01 * int(number[1]) if number else 0.0


def gullible(query, texts):
    """Obeys whoever says so, and believes bad things of the others."""
    lowered = {slot for slot, text in enumerate(texts) if any("every other" in t for t in texts[:slot] + texts[slot + 1 :])}
    return [base(t) + 0.5 * ("Ignore the rubric" in t) - 0.05 * (slot in lowered) for slot, t in enumerate(texts)]


def blind(query, texts):
    return [1 / (slot + 2) for slot in range(len(texts))]


@pytest.fixture(scope="module")
def data():
    return some_instances(queries=6)


@pytest.fixture(scope="module")
def audit(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("attack") / "run"  # the folder above holds nothing else, whatever ran before
    return attack(gullible, data, out=folder, **HOW)


def test_planted_gains_come_back(audit):
    for name in set(ATTACKS) - {"long"}:
        own = audit[name]["own_gain"]
        assert own.attack.value == pytest.approx(0.5 * (name in OBEDIENT), abs=1e-12)
        assert own.harmless.value == pytest.approx(0, abs=1e-12)
        assert own.beyond.value == pytest.approx(own.attack.value, abs=1e-12)
        assert own.attack.queries == 6
        assert name == "leak" or audit[name]["becomes_first"].attack.value == (name in OBEDIENT)  # a leak lowers the others
        assert audit[name]["becomes_first"].harmless.value == 0


def test_planted_harm_to_companions_comes_back(audit):
    moved = {name: of["companion_change"].attack.value for name, of in audit.effects.items()}
    # The long text says the same as the instruction, and only that is seen of it.
    assert moved == pytest.approx({name: 0.05 * (name in ("demotion", "leak")) for name in ATTACKS}, abs=1e-12)
    assert audit["leak"]["companion_overlap"].attack.value < 1
    assert audit["instruction"]["companion_overlap"].attack.value == 1


def test_the_example_is_a_query_in_which_an_attack_gained_most(audit):
    example = audit.example
    attacker = next(row for row in example.rows if row[0] == example.attacker)
    assert attacker[2] - attacker[1] == pytest.approx(0.5)
    assert (attacker[4], [row[4] for row in example.rows]) == (1, list(range(1, 7)))


def test_a_scorer_that_does_not_read_gives_equal_bits(data, tmp_path):
    found = attack(blind, data, attacks=["turns", "long"], out=tmp_path, **HOW)
    rows = {place: np.stack([q.scores for q in Run.open(tmp_path / place).read_queries()]) for place in (CLEAN, "attacks/turns")}
    assert rows[CLEAN].tobytes() == rows["attacks/turns"].tobytes()
    for of in found.effects.values():
        assert {name: effect.attack.value for name, effect in of.items()} == {
            name: float(name == "companion_overlap") for name in of
        }
    assert found.example is None
    assert "No attack raised" in (found.report(tmp_path / "page").parent / "report.md").read_text()


def test_length_is_not_taken_for_an_injection(data):
    found = attack(lambda query, texts: [float(len(text)) for text in texts], data, attacks=["skeleton", "turns"], **HOW)
    for of in found.effects.values():
        assert of["own_gain"].attack.value > 50
        assert {effect.beyond.value for effect in of.values()} == {0.0}


def test_a_folder_gives_the_same_figures_without_the_scorer(audit):
    assert steadyscore.load_attack(audit.folder) == audit
    some = steadyscore.load_attack(audit.folder, attacks=["leak"])
    assert some.effects == {"leak": audit["leak"]}
    other = steadyscore.load_attack(audit.folder, threshold=steadyscore.Threshold(cutoff=9.0))
    assert other["instruction"]["enters_set"].attack.value == 0
    assert json.loads((audit.folder / "summary.json").read_text())["attacks"]["leak"] == audit.to_json()["attacks"]["leak"]


def test_a_stop_loses_nothing_and_nothing_is_scored_twice(audit, data, tmp_path):
    calls = []

    def stopping(query, texts):
        calls.append(query)
        if len(calls) == 40:
            signal.raise_signal(signal.SIGINT)
        return gullible(query, texts)

    names, windows = ["instruction", "demotion"], 6 * 2 * 5
    with pytest.raises(KeyboardInterrupt):
        attack({"mine": stopping}, data, attacks=names, out=tmp_path, **HOW)
    for compared in (3 * 3 + 2, 5 * 3):  # of three whole runs and one that stopped in its second query; then of five
        windows += compared
        found = attack({"mine": stopping}, data, attacks=names, out=tmp_path, **HOW)
        assert found.effects == {name: audit[name] for name in names}
        assert len(calls) == windows  # the query at work is finished before the stop


def test_a_query_that_fails_under_an_attack_is_named_and_in_no_figure_of_it(data):
    def fragile(query, texts):
        if query == "what is thing 3" and any("Ignore" in text for text in texts):
            raise ValueError("refused")
        return gullible(query, texts)

    found = attack(fragile, data, attacks=["instruction", "skeleton"], **HOW)
    assert [(f.query_id, f.reason) for f in found.failed] == [("q3", "ValueError: refused")]
    assert found["instruction"]["own_gain"].harmless.queries == found["instruction"]["own_gain"].attack.queries == 5
    assert found["skeleton"]["own_gain"].attack.queries == 6


def test_a_million_characters_are_cut_as_any_text_is(data):
    seen = []

    def measuring(query, texts):
        seen.extend(map(len, texts))
        return [0.0 for _ in texts]

    attack(measuring, data, attacks=["long"], chars=300, **HOW)
    assert max(seen) == 300


def test_a_long_text_that_nothing_cuts_is_refused(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(attacks, "LONG", 20_000)  # a million take the tokenizer of bytes ten seconds
    tiny_causal(max_position_embeddings=2000).save_pretrained(tmp_path / "m")
    byte_tokenizer().save_pretrained(tmp_path / "m")
    file = write_collection(tmp_path / "whole.jsonl", data[:1], chars=None)
    words = ["--scorer", f"hf:{tmp_path / 'm'}", "--data", str(file), "--width", "2", "--out", str(tmp_path / "run")]
    assert main(["study", "attack", *words, "--attacks", "instruction", "turns", "long", "--no-report"]) == 1
    assert "of query q0 needs 2" in (said := capsys.readouterr().err)
    assert "Lower --width or --chars" in said
    assert not Run.open(tmp_path / "run" / "attacks" / "long").is_complete
    turns = next(Run.open(tmp_path / "run" / "attacks" / "turns").iter_queries())
    assert turns.scores.shape == (1, 6)  # imitated markup added no slot


def test_queries_without_a_candidate_that_could_attack_are_named(data):
    loved = [{**row, "candidates": [{**c, "relevance": 1} for c in row["candidates"]]} for row in data[:2]]
    found = attack(gullible, [*data[2:], *loved], attacks=["leak"], **HOW)
    assert (found.without_attacker, found.queries) == (("q0", "q1"), 4)
    with pytest.raises(InputError, match="none can attack"):
        attack(gullible, loved, attacks=["leak"], **HOW)


def test_alone_in_its_window_a_candidate_has_no_companions(data):
    found = attack(gullible, data, attacks=["demotion"], **HOW | {"width": 1})
    assert "companion_change" not in found["demotion"]
    assert found["demotion"]["companion_overlap"].attack.value == 1


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"permutations": 3}, "attack has no setting permutations"),
        ({"attacks": ["charm"]}, "unknown attack 'charm'"),
        (
            {"config": steadyscore.AuditConfig(threshold=steadyscore.Threshold(protocol="reference"))},
            "attack has no setting threshold_protocol",
        ),
        ({"query_ids": ["q99"]}, "no query has the id q99"),
    ],
)
def test_bad_settings_are_refused(data, how, said):
    with pytest.raises(InputError, match=said):
        attack(gullible, data, **how)


def test_a_cutoff_of_shuffled_orders_is_refused(audit):
    with pytest.raises(InputError, match="shuffled orders, and an attack has none"):
        steadyscore.load_attack(audit.folder, threshold=steadyscore.Threshold(protocol="reference"))


def test_scores_that_were_kept_cannot_be_attacked(audit, data, tmp_path):
    file = write_collection(tmp_path / "kept.jsonl", data)
    with pytest.raises(InputError, match="reads no text"):
        attack(f"scores:{audit.folder / CLEAN}", file)


def test_several_scorers_are_refused(data):
    with pytest.raises(InputError, match="an attack takes one scorer at a time, and 2 were given"):
        attack([gullible, blind], data)


# -- the gate


def test_a_gate_bounds_every_attack_or_one(audit):
    assert audit.gate(max={"own_gain.leak": 0.1}, min={"companion_overlap.instruction": 0.9})
    every = audit.gate(max={"beyond_own_gain": 0.1})
    assert {str(c.bound).split()[0] for c in every.checks if not c.ok} >= {f"beyond_own_gain.{name}" for name in OBEDIENT}
    with pytest.raises(GateFailed, match=r"own_gain.instruction <= 0.1 fails with 0.5000"):
        audit.gate(max={"own_gain": 0.1}).raise_if_failed()


def test_a_bound_on_nothing_that_was_measured_is_refused(data, audit):
    with pytest.raises(InputError, match="unknown measure 'tau_psi'; there are own_gain"):
        audit.gate(max={"tau_psi": 0.1})
    unjudged = [{**row, "candidates": [c["text"] for c in row["candidates"]]} for row in data]
    found = attack(blind, unjudged, attacks=["leak"], cutoff="f1")
    with pytest.raises(InputError, match="no enters_set; the cutoff is: none"):
        found.gate(max={"enters_set": 0.1})


def test_a_gate_counts_the_queries_that_could_not_be_scored(audit):
    lame = replace(audit, failed=(Failure("q8", "down"), Failure("q9", "down")))
    bounds = {"max": {"own_gain.leak": 0.1}}
    assert audit.gate(**bounds)
    with pytest.raises(GateFailed, match=r"2 queries are missing\. Run the same command again"):
        lame.gate(**bounds).raise_if_failed()
    assert [check.missing for check in lame.gate(**bounds).checks] == [2, 2]
    assert lame.gate(**bounds, allow_missing=2)


# -- the command


def test_the_command_scores_reads_again_and_gates(tmp_path, capsys):
    out = str(tmp_path / "run")
    asked = ["--data", "passages", "--queries", "4", "--pool", "6", "--match-retention", "0.3", "--out", out, "--json"]
    assert main(["study", "attack", "--scorer", "synthetic:companion", *asked, "--attacks", "leak", "turns"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert list(first["attacks"]) == ["turns", "leak"]
    assert set(first["attacks"]["leak"]["own_gain"]) == {"attack", "harmless", "beyond_harmless"}
    assert (tmp_path / "run" / "report" / "index.html").exists()
    assert main(["study", "attack", "--runs", out, "--json", "--max", "own_gain.leak=-9"]) == 3
    said = capsys.readouterr()
    again = json.loads(said.out)
    assert [check["ok"] for check in again.pop("gate")] == [False]
    assert again == first
    assert "own_gain.leak <= -9 fails with" in said.err
    assert main(["study", "attack", "--runs", out, "--no-report", "--min", "companion_overlap=0"]) == 0
    assert "In brackets" in (text := capsys.readouterr().out)
    assert "companion_overlap.leak >= 0" in text


def test_the_plan_counts_every_run(capsys):
    words = ["--scorer", "synthetic:none", "--data", "passages", "--queries", "3", "--pool", "6", "--width", "3", "--dry-run"]
    assert main(["study", "attack", *words, "--attacks", "leak", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["queries"], one["windows"]) == (3, 3 * 2 * 3)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--data", "passages"], 2, "--scorer is missing; or name a finished attack with --runs."),
        (["--runs", "x", "--scorer", "synthetic:none"], 2, "--runs reads a finished attack; leave out --scorer."),
        (["--runs", "x", "--max", "beauty=1"], 2, "unknown measure 'beauty'; there are own_gain"),
        (["--runs", "x"], 1, "is not a run folder"),
    ],
)
def test_bad_input_is_one_sentence(arguments, code, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["study", "attack", *arguments]) == code
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_protocol_that_needs_shuffled_orders_is_not_offered(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["study", "attack", "--runs", "x", "--set", "threshold_protocol=reference"])
    assert "there is no setting 'threshold_protocol'" in capsys.readouterr().err


def test_a_wrong_scorer_and_a_wrong_collection_are_named_together(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for plan in ([], ["--dry-run"]):
        assert main(["study", "attack", "--scorer", "nothing:like-it", "--data", "no-such", "--out", "out", *plan]) == 1
        said = capsys.readouterr().err
        assert "nothing:like-it" in said
        assert "no-such" in said
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [["report"], ["gate", "--max", "tau_psi=1"], ["compare"]])
def test_other_verbs_name_the_one_that_reads_an_attack(audit, command, capsys):
    for folder in (audit.folder, audit.folder.parent):
        assert main([command[0], str(folder), *command[1:]]) == 1
        said = capsys.readouterr().err
        assert f"{audit.folder} is the folder of an attack: `steadyscore study attack --runs {audit.folder}`" in said
    assert not (audit.folder / "report").exists()


def test_a_single_run_of_an_attack_is_read_as_a_run(audit):
    assert [run.folder for run in find_runs([audit.folder / CLEAN])] == [audit.folder / CLEAN]


# -- the page


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)


def test_hostile_names_and_words_stay_text_on_the_page(tmp_path):
    marks = "<script>x</script>|[a](javascript:1)\u202e"
    rows = [
        {**row, "id": f"{marks}{row['id']}", "candidates": [{**c, "id": f"{marks}{c['id']}"} for c in row["candidates"]]}
        for row in some_instances()
    ]
    source = steadyscore.from_records(rows, name=f"<img src=x onerror=1>{marks}")
    page = attack({marks: gullible}, source, attacks=["turns", "right_to_left", "zero_width"], **HOW).report(tmp_path)
    html, markdown = page.read_text(), (tmp_path / "report.md").read_text()
    parser = Tags()
    parser.feed(html)
    assert not parser.seen & {"script", "img", "iframe"}
    assert "default-src 'none'" in html
    for text in (html, markdown):
        assert "\u202e" not in text
        assert "\u200b" not in text
        assert "<script>" not in text
    assert "⟨U+202E⟩" in html
    assert "⟨U+200B⟩" in html
    assert "](javascript" not in markdown.replace("\\]", "")


# -- words that nobody reads


def titled(data, length, queries=6):
    """The same pools; the first queries have titles of so many characters."""
    pools = [[c | ({"title": "t" * length} if q < queries else {}) for c in row["candidates"]] for q, row in enumerate(data)]
    return [row | {"candidates": pool} for row, pool in zip(data, pools, strict=True)]


@pytest.mark.parametrize(
    ("length", "chars", "name", "end"),
    [(300, 300, "instruction", 443), (0, 60, "instruction", 142), (40, 300, "zero_width", 324), (300, 300, "long", 443)],
    ids=["title", "chars", "both", "long"],
)
def test_an_attack_whose_words_do_not_reach_the_scorer_is_not_measured(data, tmp_path, length, chars, name, end):
    how = HOW | {"attacks": [name], "chars": chars, "out": tmp_path / "run"}
    found = attack(gullible, titled(data, length, 6 if length else 0), **how)
    why = f"the words do not reach the scorer (they end at character {end} of title and text, and {chars} are shown)"
    assert found.not_measured == {name: why} == found.to_json()["not_measured"]
    assert f"{name}: not measured: {why}." in str(found)
    assert re.search(rf"{name} +not measured", str(found))
    assert why in found.report(tmp_path / "page").read_text()
    assert steadyscore.load_attack(tmp_path / "run") == found
    gate = found.gate(max={"beyond_own_gain": 0.1}, allow_missing=99)
    assert not gate
    with pytest.raises(GateFailed, match=rf"beyond_own_gain.{name} <= 0.1 is not measured"):
        gate.raise_if_failed()
    assert gate.to_json()[0]["value"] is None


def test_words_that_reach_the_scorer_in_some_queries_are_measured_there_and_the_others_named(data):
    found = attack(gullible, titled(data, 300, queries=2), attacks=["instruction", "skeleton"], chars=400, **HOW)
    assert found["instruction"]["own_gain"].attack.value == pytest.approx(0.5, abs=1e-12)
    assert found["instruction"]["own_gain"].attack.queries == 4
    assert found["skeleton"]["own_gain"].attack.queries == 6
    assert {failure.query_id for failure in found.failed} == {"q0", "q1"}
    assert not found.gate(max={"own_gain": 1.0})


def test_words_behind_a_title_reach_whoever_is_shown_whole_texts(data):
    found = attack(gullible, titled(data, 5000), attacks=["instruction"], **HOW)
    assert found["instruction"]["own_gain"].attack.value == pytest.approx(0.5, abs=1e-12)


def test_words_that_a_window_was_shrunk_out_of_are_not_measured(data, tmp_path):
    tiny_causal(max_position_embeddings=980).save_pretrained(tmp_path / "m")
    byte_tokenizer().save_pretrained(tmp_path / "m")
    rows = titled([row | {"candidates": row["candidates"][:3]} for row in data[:1]], 30)
    found = attack(f"hf:{tmp_path / 'm'}", rows, attacks=["instruction", "skeleton"], fit="shrink", **HOW)
    assert list(found.not_measured) == ["instruction"]
    assert found["skeleton"]["own_gain"].attack.queries == 1
