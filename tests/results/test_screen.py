"""A first look: at most six columns that fit a terminal, the notes that matter most, and how much more there is."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import steadyscore
from steadyscore.measures.registry import MEASURES
from steadyscore.results.figure import Figure, mean_figure
from steadyscore.results.notes import FLATTERS
from steadyscore.results.screen import FIRST_LOOK, every_measure, screen_measures
from steadyscore.tasks import TASKS
from tests.helpers.pools import some_instances


def by_place(query, texts):
    return [float(len(texts) - place) for place in range(len(texts))]


def length(query, texts):
    return [len(text) for text in texts]


@pytest.fixture(scope="module")
def audits():
    return steadyscore.audit([length, by_place], ["passages", "responses"], queries=6, permutations=3, quiet=True)


def with_measures(audit, *names, task=None, figures=None):
    """The audit as if these had been measured too, or only `figures`."""
    known = audit.figures if figures is None else figures
    figure = audit.figures["tau_psi"]
    return replace(audit, figures=known | dict.fromkeys(names, figure), task=task or audit.task)


def test_a_first_look_is_the_tasks_own(audits):
    passages, responses = audits[0], audits[1]
    assert screen_measures([passages]) == ["ndcg@10", "tau_psi", "overlap", "chance_overlap", "retention"]
    assert screen_measures([responses]) == ["ndcg@1", "tau_psi", "pair_flip", "overlap", "retention"]


@pytest.mark.parametrize("task", ["multidoc_qa", "claim_verification"])
def test_what_a_reader_makes_of_it_takes_the_place_of_the_overlap_by_chance(audits, task):
    flip = TASKS[task].reader.flip
    read = with_measures(audits[0], flip, "answer_em", task=TASKS[task])
    assert screen_measures([read]) == ["ndcg@10", "tau_psi", flip, "overlap", "retention"]
    assert "chance_overlap" in screen_measures([with_measures(audits[0], task=TASKS[task])])


def test_what_was_asked_for_is_shown_before_what_a_decision_is_read_against(audits):
    asked = with_measures(audits[0], "pool_psi", "top10_changed", "P@5")
    assert screen_measures([asked]) == ["ndcg@10", "tau_psi", "overlap", "P@5", "pool_psi"]


def test_what_nobody_measured_leaves_no_column(audits):
    bare = with_measures(audits[0], figures={"tau_psi": audits[0].figures["tau_psi"]})
    assert screen_measures([bare]) == ["tau_psi"]
    unjudged = steadyscore.audit(length, [{"query": "a", "candidates": ["x", "yy"]}] * 3, permutations=2, quiet=True)
    assert not [line for line in unjudged.table.splitlines()[1:] if line.split()[-1] == "nan"]


@pytest.mark.parametrize("task", TASKS)
def test_everything_at_once_still_fits_a_first_look(audits, task):
    everything = with_measures(audits[0], *MEASURES, task=TASKS[task])
    shown = screen_measures([everything])
    assert len(shown) == FIRST_LOOK
    assert shown[0] == TASKS[task].quality


@pytest.mark.parametrize("judged", [True, False])
def test_pools_of_two_are_measured_as_pairs(judged):
    pair = [{"id": "a", "text": "good", **({"relevance": 1} if judged else {})}, {"id": "b", "text": "bad"}]
    rows = [{"query": f"question {q}", "candidates": pair} for q in range(12)]
    (found,) = steadyscore.audit(by_place, rows, quiet=True)
    shown = screen_measures([found])
    assert [name for name in shown if name in ("swap_flip", "first_place_bias")] == ["swap_flip", "first_place_bias"]
    assert ("swap_accuracy" in shown) is judged


def test_a_row_fits_a_terminal_whatever_the_names_and_with_a_noise_floor():
    names = {f"a scorer with a very long name that nobody would type, number {i} of two": scorer
             for i, scorer in enumerate((length, by_place))}  # fmt: skip
    rows = [row | {"id": f"q{i}"} for i, row in enumerate(some_instances(12))]
    found = steadyscore.audit(names, rows, permutations=3, noise_floor=True, quiet=True)
    lines = found.table.splitlines()
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith("  noise floor ") for line in lines) == 2
    assert len({line.split("  ")[0] for line in lines[1:]}) == len(lines) - 2  # two floors, and every other name once


def test_the_last_line_counts_what_a_first_look_leaves_out(audits):
    *shown, last = audits.to_text(more="elsewhere").splitlines()
    told = audits.remarks()
    assert sum(remark in shown for remark in told) == 3
    notes, measures = map(int, re.fullmatch(r"(\d+) more notes?, (\d+) more measures?: elsewhere", last).groups())
    assert notes == len(told) - 3
    measured = {name for audit in audits for name in audit.figures}
    assert measures == len(measured - {*screen_measures(audits[::2]), *screen_measures(audits[1::2])})


def test_everything_is_printed_on_request_and_stands_folded_in_a_notebook(audits):
    text, html = audits.to_text(everything=True), audits._repr_html_()
    for audit in audits:
        assert not [name for name in audit.figures if f"\n{name} " not in text]
    assert all(remark in text for remark in audits.remarks())
    first, _, folded = html.partition("<details>")
    assert first.count("<p>") == 3
    assert folded.count("<p>") == len(audits.remarks()) - 3 + 1  # what the column `detectable` says
    assert folded.count("<table>") == first.count("<table>") == 2


def test_notes_come_by_how_much_depends_on_them(audits):
    for audit in audits:
        weights = [note.weight for note in audit.notes()]
        assert weights == sorted(weights)
        assert audit.warnings() == [note.text for note in audit.notes() if note.weight <= FLATTERS]
        assert [str(note) for note in audit.notes()] == audit.remarks()


def test_what_could_not_be_scored_is_told_of_every_scorer():
    def failing(number):
        def score(query, texts):
            if query == queries[number]:
                raise ValueError("no")
            return [float(len(text)) for text in texts]

        return score

    rows = some_instances(12)
    queries = [row["query"] for row in rows]
    found = steadyscore.audit({f"scorer {i}": failing(i) for i in range(5)}, rows, permutations=2, quiet=True)
    assert str(found).count("1 of 12 queries of scorer ") == 5


def test_every_measure_says_the_smallest_difference_that_it_could_have_shown(audits):
    (table,) = every_measure(audits[:1])
    assert [column.key for column in table.columns][-2:] == ["queries", "detectable"]
    row = next(row for row in table.rows if row.name == "tau_psi")
    figure = audits[0].figures["tau_psi"]
    assert row.cells[-1].value == figure.detectable == pytest.approx(1.4294 * (figure.high - figure.low) / 2, abs=1e-4)
    assert Figure(0.5, None, None, 1).detectable is None


def test_a_true_difference_of_that_size_is_shown_in_eight_of_ten_studies():
    rng, values = np.random.default_rng(0), []
    size = mean_figure(rng.standard_normal(400)).detectable
    for _ in range(300):
        figure = mean_figure(rng.standard_normal(400) + size)
        values.append(figure.low > 0 or figure.high < 0)
    assert 0.7 < np.mean(values) < 0.9
