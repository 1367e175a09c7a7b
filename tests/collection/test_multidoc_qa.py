"""Multi-document QA from miniatures of the public files: as published, and as the hub lays them out."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyscore.collection.files import Dropped, Report, convert_records, records
from steadyscore.collection.layouts import LAYOUTS, aliases_of, hotpotqa, musique

KEYS = [
    "id", "_id", "question", "answer", "supporting_facts", "context", "paragraphs", "answer_aliases", "instruction",
    "completions", "prompt", "chosen", "rejected", "answers", "domain", "question_id", "scores", "response_1", "response_2",
]  # fmt: skip


def hotpot(id="5a8b", passages=10, supports=("T1", "T3"), **more) -> dict:
    context = [[f"T{i}", [f"Sentence one of {i}.", f" And  two é {i}."]] for i in range(passages)]
    facts = [[title, 0] for title in supports] + [[supports[0], 1]]
    return {
        "_id": id, "question": " Which \n one? ", "answer": "yes", "type": "bridge", "level": "hard",
        "supporting_facts": facts, "context": context, **more,
    }  # fmt: skip


def on_the_hub(record: dict) -> dict:
    titles, sentences = zip(*record["context"], strict=True)
    facts = {
        "title": [fact[0] for fact in record["supporting_facts"]],
        "sent_id": [fact[1] for fact in record["supporting_facts"]],
    }
    rest = {key: value for key, value in record.items() if key != "_id"}
    return rest | {
        "id": record["_id"],
        "context": {"title": list(titles), "sentences": list(sentences)},
        "supporting_facts": facts,
    }


def test_hotpotqa_as_published_and_on_the_hub_are_the_same_instance():
    published = hotpotqa(hotpot(), 1)
    assert published == hotpotqa(on_the_hub(hotpot()), 1)
    assert (published.id, published.query, published.answers) == ("5a8b", "Which one?", ("yes",))
    assert [candidate.relevance for candidate in published.pool] == [0, 1, 0, 1, 0, 0, 0, 0, 0, 0]
    assert published.pool[1].text == "Sentence one of 1. And  two é 1."
    assert (published.pool[1].id, published.pool[1].title) == ("5a8b-p02", "T1")


def test_2wiki_takes_further_answers_from_its_aliases():
    record = hotpot(answer_id="Q1", context=json.dumps(hotpot()["context"]))
    id, names = aliases_of({"Q_id": "Q1", "aliases": ["aye", "yes"], "demonyms": ["yea"]})
    assert hotpotqa(record, 1, {id: names}).answers == ("yes", "aye", "yea")
    assert hotpotqa(record, 1, {}).answers == ("yes",)


@pytest.mark.parametrize(
    ("record", "filter"),
    [
        (hotpot(passages=8), "not exactly 10 passages"),
        (hotpot(supports=("T1",)), "not exactly 2 supporting passages"),
        (hotpot(supports=("T1", "T2", "T3")), "not exactly 2 supporting passages"),
        (hotpot(context=[*hotpot()["context"][:9], ["T9", [""]]]), "an empty passage"),
    ],
)
def test_what_the_protocol_leaves_out_is_dropped_by_name(record, filter):
    with pytest.raises(Dropped, match=filter):
        hotpotqa(record, 1)


@pytest.mark.parametrize(
    ("record", "mistake"),
    [
        ({key: value for key, value in hotpot().items() if key != "answer"}, '"answer" is missing'),
        (hotpot(context=7), '"context" is a int'),
        (hotpot(context="{"), "a string that is not JSON"),
        (hotpot(context=[["T1"]]), r"list of \[title, sentences\] pairs"),
        (hotpot(context={"title": ["a"], "sentences": []}), "of one length"),
    ],
)
def test_broken_records_are_mistakes(record, mistake):
    with pytest.raises(ValueError, match=mistake):
        hotpotqa(record, 1)


def paragraphs(supports, size=20):
    return [
        {"idx": i, "title": f"T{i}", "paragraph_text": f"Paragraph {i}.", "is_supporting": i in supports} for i in range(size)
    ]


def test_musique_keeps_the_supports_and_the_first_distractors_in_order():
    record = {
        "id": "2hop__1", "question": "Who?", "answer": "Ann", "answer_aliases": ["Anne", "Ann"], "answerable": True,
        "paragraphs": paragraphs({3, 17}),
    }  # fmt: skip
    instance = musique(record, 1)
    assert [candidate.title for candidate in instance.pool] == [f"T{i}" for i in (0, 1, 2, 3, 4, 5, 6, 7, 8, 17)]
    assert [candidate.relevance for candidate in instance.pool] == [0, 0, 0, 1, 0, 0, 0, 0, 0, 1]
    assert instance.answers == ("Ann", "Anne")
    for supports, size, filter in (({1, 2, 3}, 20, "2 supporting"), ({0, 1}, 9, "fewer than 10"), (set(), 20, "2 supporting")):
        with pytest.raises(Dropped, match=filter):
            musique({**record, "paragraphs": paragraphs(supports, size)}, 1)
    with pytest.raises(Dropped, match="not answerable"):
        musique({**record, "answerable": False}, 1)


def test_an_array_is_read_piece_by_piece_and_a_broken_one_is_told(tmp_path):
    many = [hotpot(id=f"{i:04d}") for i in range(1500)]  # several pieces of a megabyte
    with gzip.open(tmp_path / "train.json.gz", "wt") as file:
        json.dump(many, file)
    (tmp_path / "broken.json").write_text(json.dumps(many[:2])[:-40])
    report = Report()
    found = list(convert_records(records([tmp_path / "train.json.gz"], report), hotpotqa, report))
    assert [instance.id for instance in found] == [record["_id"] for record in many]
    assert not report.mistakes
    list(convert_records(records([tmp_path / "broken.json"], report), hotpotqa, report))
    assert "broken.json: record 2: the array breaks here" in report.mistakes[0]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["title", "rank", "label", "x"]), inner),
    max_leaves=6,
)
RECORDS = [hotpot(), {"id": "1", "prompt": "p", "chosen": ["a"], "rejected": ["b", "c", "d"], "domain": None, "scores": [1, 0]}]


@pytest.mark.parametrize("format", sorted(LAYOUTS))
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(RECORDS), st.dictionaries(st.sampled_from(KEYS), json_values, max_size=4))
def test_no_record_breaks_a_loader(format, record, fields):
    """Whatever a record holds it is converted, dropped by name or reported with its place."""
    report = Report()
    found = list(convert_records([("file:1", {**record, **fields})], LAYOUTS[format][1], report))
    assert len(found) + sum(report.dropped.values()) + bool(report.mistakes) == 1


def test_mistakes_and_repeated_ids_are_collected_with_their_place(tmp_path):
    rows = [hotpot(), {"_id": "x"}, hotpot(), [], hotpot(passages=3)]
    (path := tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = Report()
    assert len(list(convert_records(records([path], report), hotpotqa, report))) == 1
    assert [mistake.split(": ")[0] for mistake in report.mistakes] == [f"{path}:{line}" for line in (2, 3, 4)]
    assert f"already at {path}:1" in report.mistakes[1]
    assert report.dropped == {"not exactly 10 passages": 1}
