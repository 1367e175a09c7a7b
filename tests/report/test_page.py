"""The report: what it says is what was measured, it holds together as a page, and candidate text stays text."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from markdown_it import MarkdownIt

import steadyscore
from steadyscore import cli
from steadyscore.collection import open_collection
from steadyscore.errors import InputError, MissingExtra
from steadyscore.machine.names import markdown_code, markdown_text
from steadyscore.measures.measurement import Cutoff, Threshold, measure
from steadyscore.measures.retained_sets import overlap
from steadyscore.readers.outputs import write_outputs
from steadyscore.report import example, figures, sentences
from steadyscore.report import page as page_module
from steadyscore.report.drawings import budget_curve
from steadyscore.report.page import Section, write_report
from steadyscore.report.templating import show_invisible
from steadyscore.results.audit import Audit
from steadyscore.results.causes import make_explainer
from steadyscore.results.figure import mean_figures
from steadyscore.results.load import load_run, load_runs, same_evidence_control
from steadyscore.runs.folder import Run
from steadyscore.runs.records import Fingerprint, RunRecord
from steadyscore.runs.table import Scored
from steadyscore.scoring.config import AuditConfig, Cut, open_scorer
from steadyscore.scoring.score import score_collection
from steadyscore.tasks import TASKS

HOSTILE = "<script>document.title = 'taken'</script> & <img src=x onerror=alert(1)> $x_1$ ${7*7} {{ 7 * 7 }}"


def scored_run(address: str, source: str, folder: Path, **config) -> Run:
    settings = AuditConfig(**{"permutations": 4, "cut": Cut(queries=8), **config})
    scorer = open_scorer(address, open_collection(source).collection, settings)
    return score_collection(scorer, source, folder, settings, command=["steadyscore", "audit", "--scorer", address])


def hostile_collection(folder: Path) -> Path:
    """A collection whose every text tries to become markup."""
    candidates = [
        {"id": f"<b>{i}</b>", "text": f"{HOSTILE} {'word ' * 60}{i}", "title": HOSTILE, "relevance": i % 3} for i in range(12)
    ]
    lines = [{"collection": {"name": "<i>hostile</i>", "task": "passage_reranking"}}]
    lines += [{"id": f"q<{q}>", "query": f"{HOSTILE} word {q}", "candidates": candidates} for q in range(6)]
    file = folder / "hostile.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Run]:
    folder = tmp_path_factory.mktemp("runs")
    return {
        (address, data): scored_run(address, data, folder / address.replace(":", "-") / data)
        for address in ("synthetic:slot:0.3", "synthetic:slot:0.05")
        for data in ("passages", "responses")
    }


@pytest.fixture(scope="module")
def written(runs: dict[tuple[str, str], Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    variants = [load_run(run, Threshold(cutoff=0.5)) for run in runs.values()]
    return write_report(variants, tmp_path_factory.mktemp("page") / "report")


@pytest.fixture(scope="module")
def page(written: Path) -> str:
    return written.read_text()


class Outline(HTMLParser):
    """Tags with their attributes, and the visible text."""

    VOID = ("meta", "link", "br", "img", "hr", "input")

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text, self.mistakes = "", []
        self.feed(text)
        self.mistakes += [f"{tag} is never closed" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.mistakes.append(f"stray </{tag}>")

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def planted(scores: list[list[float]], relevance: list[float], query_id: str = "q") -> Scored:
    values = np.asarray(scores, float)
    return Scored(
        query_id=query_id,
        candidate_ids=tuple("abcdefgh"[: values.shape[1]]),
        permutations=np.arange(len(values)),
        scores=values,
        relevance=np.asarray(relevance, float),
    )


def variant(queries: list[Scored], by: Threshold | None = None, task: str = "passage_reranking", name: str = "planted") -> Audit:
    measured = measure(queries, by)
    record = RunRecord(format=2, status="complete", name=name, collection="small", task=task, fingerprint=Fingerprint())
    figures = mean_figures(measured)
    return Audit(name, "small", TASKS[task], record, queries, measured, figures, threshold=by or Threshold())


# -- the verdict


def test_the_sentence_states_what_was_planted() -> None:
    # One of two orders keeps {a, b}, the other {b, c}: overlap 1/3. The ranking by gain is the same in both: nDCG does not move.
    rows = [[0.9, 0.8, 0.1, 0.0], [0.4, 0.95, 0.7, 0.0]]
    queries = [planted(rows, [0, 1, 0, 0], query_id=f"q{i}") for i in range(3)]
    found = variant(queries, Threshold(cutoff=0.5))
    text = sentences.sentence(found, "overlap")
    assert text.startswith("planted: another order changes 67 % of what the threshold keeps in either order (overlap 0.33), ")
    first, second = 1 / np.log2(3), 1.0  # b is second in one order and first in the other
    assert sentences.quality_movement(found, "overlap") == pytest.approx(second - first)
    assert text.endswith("while nDCG@10 moves by 0.37. Not settled: 3 queries are too few to tell.")


def test_the_sentence_is_worded_for_the_preference_consumer() -> None:
    queries = [planted([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]], [3, 1, 0], query_id=f"q{i}") for i in range(2)]
    text = sentences.sentence(variant(queries, task="response_ranking"), "pair_flip")
    assert "planted: another order changes the chosen/rejected pair 100 % of the time (pair flip 1.00)" in text


def test_a_single_permutation_is_said_to_show_no_change(tmp_path: Path) -> None:
    run = scored_run("synthetic:slot", "responses", tmp_path / "run", permutations=1)
    text = write_report([load_run(run)], tmp_path / "page").read_text()
    assert "is not known: only one permutation was scored, and change needs two." in text


def test_without_judgements_decisions_are_told_and_quality_is_said_to_be_unknown(tmp_path: Path) -> None:
    file = tmp_path / "bare.jsonl"
    rows = [
        {"id": f"q{q}", "query": "a b", "candidates": [{"id": str(i), "text": f"a {i}"} for i in range(12)]} for q in range(3)
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    page = write_report([load_run(scored_run("synthetic:slot", str(file), tmp_path / "run"))], tmp_path / "page").read_text()
    assert "of what is among the first 10 in either order" in page
    assert "quality is not known, as no query that this is measured on has judgements" in page


def test_a_cutoff_that_keeps_everything_does_not_make_the_headline(runs) -> None:
    found = load_run(runs["synthetic:slot:0.3", "passages"], Threshold(cutoff=-1.0))
    assert found["overlap"].value == 1
    assert sentences.decision_measure([found]) == "overlap@10"
    assert "keeps 100.0 % of the pool" in sentences.idle_note(found)


def test_a_variant_that_keeps_everything_wins_nothing(runs, tmp_path: Path) -> None:
    idle = replace(load_run(runs["synthetic:slot:0.05", "passages"], Threshold(cutoff=-1.0)), name="idle")
    others = [replace(load_run(runs["synthetic:slot:0.3", "passages"], Threshold(cutoff=c)), name=f"at {c}") for c in (0.5, 0.6)]
    page = write_report([idle, *others], tmp_path).read_text()
    assert "What idle keeps is not compared: its threshold keeps 100.0\u00a0% of the pool." in page
    assert "steadiest" not in page.partition("<main")[2]  # three thresholds
    assert "<strong>1.000</strong>" not in page


def test_the_verdict_is_told_against_the_next_and_settled_only_by_its_interval(page: str) -> None:
    assert "Steadiest: synthetic:slot:0.05. Another order changes" in page
    queries = [planted([[0.9, 0.5, 0.1], [0.8, 0.5, 0.2]], [1, 0, 0], query_id=f"q{i}") for i in range(6)]
    shaky = [*queries[:5], planted([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]], [1, 0, 0], query_id="q5")]
    unlike = [planted([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]], [1, 0, 0], query_id=f"q{i}") for i in range(6)]
    one, two, three = (
        variant(of, Threshold(cutoff=0.6), name=name) for name, of in (("one", queries), ("two", shaky), ("three", unlike))
    )
    kept = "of what the threshold keeps in either order"
    told = sentences.verdict([one, two, three], "overlap")
    assert told.startswith(f"Steadiest: one. Another order changes 0 % {kept}, against 17 % for two. Not settled: a ")
    told = sentences.verdict([one, three], "overlap")
    assert told.endswith("100 % for three. Settled: a difference of 100 points, 95 % interval 100 to 100.")


def test_a_change_is_settled_only_above_nothing_and_above_the_floor() -> None:
    flips = [planted([[0.9, 0.1], [0.1, 0.9]], [1, 0], query_id=f"q{i}") for i in range(6)]
    same = [planted([[0.9, 0.1], [0.8, 0.2]], [1, 0], query_id=f"q{i}") for i in range(6)]

    def told(queries: list[Scored], **changed) -> str:
        found = variant(queries, Threshold(cutoff=0.5))
        return sentences.sentence(
            replace(found, figures=found.figures | {"overlap": replace(found["overlap"], **changed)}), "overlap"
        )

    assert told(flips).endswith(" Settled: 95 % interval 100 to 100 %, 6 queries.")
    assert " Not settled: 95 % interval 0 to 83 %" in told([*flips[:1], *same[1:]], high=1.0, low=0.17)
    assert told(same).endswith(" No order changed a decision on any of 6 queries.")
    assert told(flips[:1]).endswith(" Not settled: 1 query is too few to tell.")
    assert "scoring the same order again moves as much" in told(flips, is_above_floor=False)


def test_a_lead_is_told_by_the_queries_that_both_have(page: str) -> None:
    good = [planted([[0.9, 0.5, 0.1], [0.8, 0.5, 0.2]], [1, 0, 0], query_id=f"q{i}") for i in range(8)]
    bad = [planted([[0.1, 0.5, 0.9], [0.2, 0.5, 0.8]], [1, 0, 0], query_id=f"q{i}") for i in range(7)]
    pair = [variant(queries, Threshold(cutoff=0.6), name=name) for queries, name in ((good, "good"), (bad, "bad"))]
    assert sentences.leader(pair, "ndcg@10").startswith("Best nDCG@10: good (nDCG@10 1.000), ahead of bad by 0.500")
    worse = [planted([[0.5, 0.9, 0.1], [0.5, 0.8, 0.2]], [1, 0, 0], query_id=f"q{i}") for i in range(7)]  # 0.631 each
    lucky = [planted([[0.9, 0.5, 0.1], [0.8, 0.5, 0.2]], [1, 0, 0], query_id=f"other {i}") for i in range(7)]
    pair = [variant(queries, Threshold(cutoff=0.6), name=name) for queries, name in (([*bad, *lucky], "lucky"), (worse, "worse"))]
    assert "on the queries that both have, worse is ahead by 0.131" in sentences.leader(pair, "ndcg@10")


# -- the most affected query


@given(arrays(np.int8, st.tuples(st.integers(2, 6), st.integers(1, 8)), elements=st.integers(0, 1)))
def test_the_two_orders_shown_overlap_least(decided: np.ndarray) -> None:
    a, b = example.two_orders(decided.astype(int), np.zeros(len(decided)))

    def pairwise(i: int, j: int) -> float:
        return float(overlap(decided[[i, j]].astype(bool)))

    assert pairwise(a, b) == pytest.approx(min(pairwise(i, j) for i in range(len(decided)) for j in range(i + 1, len(decided))))


def test_of_equal_pairs_the_nearest_in_quality_is_shown() -> None:
    decided = np.array([[1, 0], [0, 1], [0, 1]])
    assert example.two_orders(decided, np.array([0.5, 0.9, 0.5])) == (0, 2)


def test_the_example_gives_every_candidate_its_outcomes() -> None:
    query = planted([[0.9, 0.8, 0.1], [0.4, 0.95, 0.7]], [0, 2, 1])
    shown = example.make_example(query, None, make_explainer([query], "overlap", None), Cutoff(0.5, "fixed"), 10)
    assert [c.cause for c in shown.candidates] == ["unknown", None, "unknown"]  # its places are not stored
    assert shown.orders is None
    assert [[outcome.word for outcome in c.outcomes] for c in shown.candidates] == [
        ["kept", "dropped"],
        ["kept", "kept"],
        ["dropped", "kept"],
    ]
    assert [*shown.groups] == ["decided differently", "kept both times"]
    assert shown.overlap == pytest.approx(1 / 3)
    assert [shown.chosen(row) for row in (0, 1)] == [2, 2]
    assert [c.gold for c in shown.candidates] == [0, 2, 1]


def test_a_preference_consumer_shows_its_pair() -> None:
    query = planted([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]], [3, 1, 0])
    shown = example.make_example(query, None, make_explainer([query], "pair_flip", None), Cutoff(None, "none"), 1)
    assert [[outcome.word for outcome in c.outcomes] for c in shown.candidates] == [
        ["chosen", "rejected"],
        ["passed over", "passed over"],
        ["rejected", "chosen"],
    ]
    assert shown.quality == (1.0, 0.0)


def test_nothing_is_shown_where_nothing_changes() -> None:
    queries = [planted([[0.9, 0.1], [0.8, 0.2]], [1, 0])]
    assert example.most_affected(queries, np.array([1.0]), "overlap", Cutoff(0.5, "fixed")) is None


# -- the page


def test_the_page_is_whole_html_with_unique_ids_and_resolved_references(page: str) -> None:
    outline = Outline(page)
    assert outline.mistakes == []
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [a[key][1:] for _, a in outline.tags for key in ("href", "xlink:href") if (a.get(key) or "").startswith("#")]
    assert targets
    assert set(targets) | set(re.findall(r"url\(#([^)]+)\)", page)) <= set(ids)


def test_the_page_loads_nothing_and_runs_nothing(page: str) -> None:
    outline = Outline(page)
    assert not {"script", "iframe", "object", "embed", "img"} & {tag for tag, _ in outline.tags}
    loads = [a[key] for _, a in outline.tags for key in ("src", "href", "xlink:href", "srcset") if a.get(key)]
    assert all(address.startswith(("#", "data:")) for address in loads)
    assert "@import" not in page
    assert not [a for _, a in outline.tags for name in a if name.startswith("on")]
    assert "default-src 'none'" in page


def test_the_parts_stand_in_order(page: str) -> None:
    parts = [
        "Steadiest: ",
        "The most affected query",
        "Quality, instability and decisions",
        "nDCG@10 of every query",
        "Slot profile",
        "Decisions, query by query",
        "Quality against decision",
        "Averaging more orders",
        "Every other cutoff",
    ]
    text = Outline(page).text
    places = [*map(text.index, parts), text.rindex("What was measured")]
    assert places == sorted(places)


def test_every_figure_is_named_and_drawn_in_the_colours_of_the_page(page: str) -> None:
    drawn = re.findall(r'<svg[^>]*role="img".*?</svg>', page, flags=re.S)
    assert len(drawn) == 6 + 5  # passages; responses have no cutoff to sweep
    for svg in drawn:
        assert re.search(r"<title id=[^>]+>.+</title><desc id=[^>]+>.+</desc>", svg)
        assert "<text" in svg  # text as text
        assert not re.search(r"(?:fill|stroke): #(?!000000)", svg)


def test_the_table_prints_what_was_measured(page: str, runs) -> None:
    found = load_run(runs["synthetic:slot:0.3", "passages"], Threshold(cutoff=0.5)).figures
    for name in ("ndcg@10", "tau_psi", "overlap", "retained_f1"):
        figure = found[name]
        assert f"{figure.value:.3f}" in page
        assert f"{figure.low:.3f} to {figure.high:.3f}" in page


def read_runs(folder: Path) -> list[Run]:
    """Two scorers of the embedded claims, read by two readers; one query could not be read."""
    found = [scored_run(f"synthetic:{effect}", "claims", folder / effect) for effect in ("slot:0.3", "slot:0.05")]
    for run, moves in zip(found, (True, False), strict=True):
        ids = [query.query_id for query in run.read_queries()]
        said = {i: [("REFUTED" if moves and m % 2 else "SUPPORTED") for m in range(4)] for i in ids[1:]}
        write_outputs(run, "hf:reader k=99", said)
        write_outputs(run, "openai:m@http://there k=5", {i: [f"REFUTED {HOSTILE}"] * 4 for i in ids})
    return found


def test_the_page_shows_what_readers_make_of_it(tmp_path: Path) -> None:
    runs = read_runs(tmp_path)
    variants = load_runs(runs, Threshold(cutoff=0.5))
    page = write_report(variants, tmp_path / "page")
    outline = Outline(page.read_text())
    assert not outline.mistakes
    assert "script" not in dict(outline.tags)
    assert "changes the reader's verdict 0\u00a0% of the time, against 67\u00a0% for" in outline.text  # 4 of the 6 pairs of SRSR
    table = outline.text[outline.text.index("What a reader makes of it") :]
    flip = variants[0]["verdict_flip"].to_json()
    assert flip["queries"] == len(runs[0].read_queries()) - 1
    for part in ("hf:reader", "first 99", "1 of 8 queries not read", "openai:m@http://there", "first 5"):
        assert part in table
    assert f"{flip['value']:.3f}" in table
    # k = 99 shows the whole pool: the evidence is always the same set, so order alone explains the difference
    assert re.search(r"100 %\s*of 7 queries\s*0\.667", table)
    control_ = same_evidence_control(load_run(runs[0]), load_run(runs[1]), "hf:reader", 99)
    assert (control_.share, control_.reduction) == (1, pytest.approx(2 / 3))
    markdown = (tmp_path / "page" / "report.md").read_text()
    assert "## What a reader makes of it: claims" in markdown
    assert "| 100 % of 7 queries | 0.667 [0.667, 0.667] |" in markdown
    assert "The reader is hf:reader k=99." in outline.text
    assert outline.text.count("reader: ") >= 2  # what it said, beside the two orders of the example


def test_a_verdict_that_an_earlier_version_decoded_as_the_likeliest_label_is_told_apart(tmp_path: Path) -> None:
    run = scored_run("synthetic:slot:0.3", "claims", tmp_path / "run")
    ids = [query.query_id for query in run.read_queries()]
    for label, verdicts in (("hf:reader k=5", ["REFUTED", "SUPPORTED"] * 2), ("hf:reader k=5 likeliest", ["REFUTED"] * 4)):
        write_outputs(run, label, dict.fromkeys(ids, verdicts))
    page = write_report([load_run(run)], tmp_path / "page")
    assert Outline(page.read_text()).text.count("hf:reader, likeliest verdict") == 1
    markdown = (tmp_path / "page" / "report.md").read_text()
    assert markdown.count("hf:reader, likeliest verdict | first 5") == 1
    assert markdown.count("hf:reader | first 5") == 1


def test_a_page_without_readers_says_nothing_of_them(page: str) -> None:
    assert "What a reader makes of it" not in page


def test_the_floor_stands_beside_the_figure(runs, tmp_path: Path) -> None:
    found = load_run(runs["synthetic:slot:0.3", "responses"])
    found.figures["pair_flip"] = replace(found.figures["pair_flip"], floor=0.987, is_above_floor=False)
    text = write_report([found], tmp_path).read_text()
    assert "floor 0.987: not above" in text
    assert "this is not above the noise floor" in text
    assert "floor 0.987 (not above)" in (tmp_path / "report.md").read_text()
    found.figures["pair_flip"] = replace(found.figures["pair_flip"], is_above_floor=None)
    assert "floor 0.987</span>" in write_report([found], tmp_path).read_text(), "too few queries to call it"


def test_settings_and_coverage_are_told(runs, tmp_path: Path) -> None:
    run = runs["synthetic:slot:0.3", "responses"]
    audit = load_run(run)
    lacking = replace(audit.measured.coverage, failed={"q-lost": "ValueError: gone"})
    text = Outline(write_report([replace(audit, measured=replace(audit.measured, coverage=lacking))], tmp_path).read_text()).text
    for told in (
        "only the first 8 queries",
        "1 of 8 queries could not be scored and are in no mean: q-lost (ValueError: gone).",
        "0 (distinct)",
        "the whole pool",
        "steadyscore audit --scorer synthetic:slot:0.3",
        "4 per query, beside the first-stage order",
    ):
        assert told in text


def test_candidate_text_stays_text(tmp_path: Path) -> None:
    run = scored_run("synthetic:slot:0.3", str(hostile_collection(tmp_path)), tmp_path / "run")
    found = replace(load_run(run, Threshold(cutoff=0.5)), name=HOSTILE)
    page = write_report([found], tmp_path / "page").read_text()
    outline = Outline(page)
    assert outline.mistakes == []
    assert not {"script", "img"} & {tag for tag, _ in outline.tags}
    assert "<script>document.title" in outline.text  # shown as it is
    assert "{{ 7 * 7 }}" in outline.text
    assert "<script" not in (tmp_path / "page" / "report.md").read_text()


HARMLESS = {"paragraph", "inline", "text", "text_special", "table", "thead", "tbody", "tr", "th", "td"}


def markdown_parts(source: str) -> tuple[set[str], str]:
    """Kinds of markup that a reader of GitHub's Markdown finds, and the text it shows."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(source)
    inner = [child for token in tokens for child in token.children or []]
    return {t.type.removesuffix("_open").removesuffix("_close") for t in [*tokens, *inner]}, "".join(t.content for t in inner)


@settings(deadline=None)
@given(st.text(alphabet="ab `*_[]()!|~<>&#;\\\n\u2028\"'x/:", max_size=40))
def test_markdown_shows_any_text_as_it_is(text: str) -> None:
    kinds, shown = markdown_parts(f"A: x{markdown_text(text)}x")
    assert kinds <= HARMLESS
    assert shown == f"A: x{' '.join(text.split())}x"
    kinds, shown = markdown_parts(f"|h|\n|---|\n|x{markdown_text(text)}x|")
    assert kinds <= HARMLESS
    assert shown == f"hx{' '.join(text.split())}x"


@settings(deadline=None)
@given(st.text(alphabet="ab `<>\\\n\u2028", min_size=1, max_size=30).filter(str.strip))
def test_markdown_shows_any_command_as_code(text: str) -> None:
    kinds, shown = markdown_parts(f"- command: {markdown_code(f'x{text}x')}")
    assert "html_inline" not in kinds
    assert shown == f"command: x{' '.join(f'{text}x'.splitlines())}"


def test_markdown_loads_no_image_and_has_no_link(tmp_path: Path) -> None:
    hostile = "![i](http://there/leak) [l](javascript:x) `</code><img src=http://there/leak>` <b>"
    run = scored_run("synthetic:slot:0.3", str(hostile_collection(tmp_path)), tmp_path / "run")
    found = replace(load_run(run), name=hostile, collection=hostile, record=replace(run.record, command=["audit", hostile]))
    write_report([found], tmp_path / "page")
    kinds, shown = markdown_parts((tmp_path / "page" / "report.md").read_text())
    assert not {"image", "link", "html_inline", "html_block"} & kinds
    assert hostile in shown


def test_characters_that_reorder_others_are_named(tmp_path: Path) -> None:
    """After a right-to-left override in a name, the figure beside it would read backwards."""
    assert show_invisible("a\u202eb\u2069\x1b") == "a⟨U+202E⟩b⟨U+2069⟩⟨U+001B⟩"
    assert show_invisible("אב\u200f é\n\t") == "אב\u200f é\n\t"
    run = scored_run("synthetic:slot:0.3", "responses", tmp_path / "run")
    page = write_report([replace(load_run(run), name="odd \u202e")], tmp_path / "page")
    for text in (page.read_text(), (tmp_path / "page" / "report.md").read_text()):
        assert "odd ⟨U+202E⟩" in text
        assert "\u202e" not in text


def test_names_in_figures_are_not_taken_for_attributes() -> None:
    name = 'id="x" #010101 url(#a)'
    svg = figures.draw_spread("title", {name: np.array([[0.1, 0.9]])}, figures.choose_styles([name]), "nDCG@10")
    assert f">{name}: spread 0.400<" in svg


def test_without_the_collection_only_ids_are_shown(tmp_path: Path) -> None:
    file = hostile_collection(tmp_path)
    run = scored_run("synthetic:slot:0.3", str(file), tmp_path / "run")
    assert load_run(run).instance("q<3>").query.endswith("word 3")
    file.write_text(file.read_text().replace("word", "other"))
    assert load_run(run).source is None  # no longer what was scored
    file.unlink()
    found = load_run(run, Threshold(cutoff=0.5))
    assert found.instance("q<3>") is None
    assert "Query q&lt;" in write_report([found], tmp_path / "page").read_text()


def test_two_runs_of_one_scorer_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    both = [scored_run("synthetic:slot:0.3", "responses", tmp_path / str(seed), seed=seed) for seed in (0, 1)]
    text = write_report([load_run(run) for run in both], tmp_path / "page").read_text()
    assert "synthetic:slot:0.3 (seed 0)" in text
    assert "synthetic:slot:0.3 (seed 1)" in text
    with pytest.raises(InputError, match="given more than once"):
        write_report([load_run(both[0])] * 2, tmp_path / "page")


def test_the_same_runs_give_the_same_bytes(runs, tmp_path: Path) -> None:
    run = runs["synthetic:slot:0.3", "responses"]
    pages = [write_report([load_run(run)], tmp_path / name).read_bytes() for name in "ab"]
    assert pages[0] == pages[1]


def test_markdown_holds_the_verdict_and_a_table_per_collection(written: Path) -> None:
    text = written.with_name("report.md").read_text()
    assert "**Steadiest: synthetic:slot:0.05. Another order changes " in text
    first, _, rest = text.partition("## Why decisions flip")
    assert "| synthetic:slot:0.3 | " in rest
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in first.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows if row[0] not in ("Scorer", "---")] == [
        "first-stage order", "chance", "synthetic:slot:0.3", "synthetic:slot:0.05",
        "chance", "synthetic:slot:0.3", "synthetic:slot:0.05",
    ]  # fmt: skip
    assert {len(row) for row in rows} == {6}


# -- figures, words, verb


def test_a_method_has_the_papers_colour_and_no_two_variants_look_alike() -> None:
    names = ["smollm2-135m", "smollm2-135m-single", "smollm2-135m-oc", "bm25"]
    look = figures.choose_styles(names)
    assert [look[n].css for n in names[:3]] == ["var(--off-the-shelf)", "var(--single-order)", "var(--oc-sft)"]
    assert len({(l.colour, l.marker) for l in look.values()}) == len(names)


@pytest.mark.parametrize(("share", "text"), [(0.41, "41 %"), (0.001, "less than 1 %"), (0.0, "0 %"), (1.0, "100 %")])
def test_percentages(share: float, text: str) -> None:
    assert sentences.percent(share) == text


def test_a_missing_plotting_library_is_named(runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_run(runs["synthetic:slot:0.3", "responses"])
    for name in ("matplotlib", "jinja2"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            with pytest.raises(MissingExtra, match=r"pip install .*\[reports\]'"):
                write_report([found], tmp_path / name)
        assert not (tmp_path / name).exists()


def test_importing_the_report_imports_no_plotting_library() -> None:
    code = "import sys, steadyscore.report; sys.exit(bool({'matplotlib', 'jinja2', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_verb_prints_the_page(runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = runs["synthetic:slot:0.3", "responses"].folder
    assert cli.main(["report", str(folder), "--out", str(tmp_path / "page")]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert Path(last.removeprefix("report: ")).read_text().startswith("<!doctype html>")
    assert cli.main(["report", str(tmp_path)]) == 1
    assert "holds no run" in capsys.readouterr().err


def test_the_verb_names_every_run_that_is_not_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        Run.create_or_resume(tmp_path / name, {"scorer": name}, name=name, collection="c", task="response_ranking")
    assert cli.main(["report", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert f"{tmp_path / 'a'} is not complete" in told
    assert f"{tmp_path / 'b'} is not complete" in told


def test_a_figure_of_many_queries_draws_some_and_says_how_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    relevance = [1.0, 0, 0, 0]
    many = variant([planted(rng.random((3, 4)).tolist(), relevance, f"q{i}") for i in range(60)], Threshold(cutoff=0.5))
    whole = write_report([many], tmp_path / "whole").read_text()
    assert "queries are drawn" not in whole
    monkeypatch.setattr(figures, "MOST_DRAWN", 20)
    some = write_report([many], tmp_path / "some").read_text()
    assert some.count("20 of 60 queries are drawn, in equal steps from the lowest to the highest; every number is of all.") == 2
    assert len(some) < len(whole)
    spread = re.compile(r"spread \d\.\d{3}")
    assert spread.findall(some) == spread.findall(whole) != []


def test_queries_that_are_left_out_are_named_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "LISTED", 2)
    audit = variant([planted([[1.0, 0.5], [0.5, 1.0]], [0.0, 0.0], f"q{i}") for i in range(5)])
    (said,) = page_module.describe_left_out(audit)
    assert said.endswith("their quality counts as 0: q0; q1; and 3 more, which status.json and summary.json name.")


def random_scores(queries: int, candidates: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Five orders of every query, unrelated to each other."""
    drawn = np.random.default_rng(seed).random((queries, 5, candidates))
    return {f"q{i}": scores for i, scores in enumerate(drawn)}


def judged(queries: int, candidates: int) -> dict[str, list[int]]:
    return {f"q{i}": [int(c < 3) for c in range(candidates)] for i in range(queries)}


def test_the_page_does_not_rank_what_different_thresholds_keep(runs):
    wide = load_run(runs["synthetic:slot:0.3", "passages"], Threshold(keep_share=0.9))
    narrow = load_run(runs["synthetic:slot:0.05", "passages"], Threshold(keep_first=1))
    section = Section([wide, narrow], figures.choose_styles([wide.name, narrow.name]))
    assert section.verdict.endswith(sentences.DIFFERENT_THRESHOLDS)
    assert not any(change.place for change in section.changes)
    overlap = [column.key for column in section.columns].index("overlap")
    assert not any(row.cells[overlap].leads for row in section.rows if row.name not in section.baselines)


def test_a_small_set_that_changes_is_no_idle_threshold():
    (found,) = steadyscore.audit(scores=random_scores(6, 60), relevance=judged(6, 60), keep_first=1)
    assert found.figures["retention"].value < 0.02
    assert not sentences.has_idle_cutoff(found)
    assert sentences.decision_measure([found]) == "overlap"


def test_a_threshold_that_mostly_keeps_nothing_is_idle():
    (found,) = steadyscore.audit(scores=random_scores(6, 10), relevance=judged(6, 10), cutoff=0.99)
    assert found.figures["empty_sets"].value > 0.5
    assert "keeps nothing in" in sentences.idle_note(found)


def test_ties_by_input_position_are_seen_by_the_sentence_and_the_example(tmp_path):
    found = steadyscore.audit(lambda query, texts: [0.5] * len(texts), "passages", queries=6, keep_first=3, ties="input")[0]
    assert sentences.quality_movement(found, "overlap") > 0.01
    decided = example.states(found.queries[0], "overlap", found.measured.cutoff)[1]
    assert (decided != decided[0]).any()


def test_a_ranking_beside_scores_has_no_example_of_kept_sets(tmp_path):
    mine = {"mine": lambda query, texts: [len(text) / 999 for text in texts], "first": "first-stage:"}
    audits = [
        replace(audit, measured=replace(audit.measured, values=audit.measured.values | {"answer_flip": np.full(6, flip)}))
        for audit, flip in zip(steadyscore.audit(mine, "multidoc_qa", queries=6), (0.5, 0.0), strict=True)
    ]
    both = [replace(audit, figures=mean_figures(audit.measured), reader="reader") for audit in audits]
    assert sentences.decision_measure(both) == "answer_flip"
    assert len(example.choose_examples(both, "answer_flip")) <= 1


def test_a_threshold_matched_to_a_run_gives_one_curve_and_one_warning_at_once_and_later(tmp_path):
    common = {"queries": 10, "permutations": 6, "report": False}
    steadyscore.audit("synthetic:slot:0.05", "passages", out=tmp_path / "other", **common)
    matched = {"match_retention": str(tmp_path / "other"), "out": tmp_path / "mine"}
    at_once = steadyscore.audit("synthetic:slot:0.3", "passages", **matched, **common)[0]
    later = steadyscore.load(tmp_path / "mine")[0]
    assert budget_curve(at_once, "overlap") == budget_curve(later, "overlap")
    assert at_once.warnings() == later.warnings()


def test_too_few_queries_call_no_lead(runs):
    enough = [load_run(run) for (_, data), run in runs.items() if data == "passages"]

    def first_four(audit: Audit) -> Audit:
        values = {name: np.where(np.arange(len(v)) < 4, v, np.nan) for name, v in audit.measured.values.items()}
        return replace(audit, measured=replace(audit.measured, values=values))

    few = [first_four(audit) for audit in enough]
    assert sentences.advantage(*enough, "tau_psi") is not None
    assert sentences.advantage(*few, "tau_psi") is None
    assert "too few shared queries" in sentences.leader(few, "tau_psi")
    assert sentences.verdict(few, "overlap").endswith("Not settled: they share too few queries to tell.")
