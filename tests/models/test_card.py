"""The card of an adapter says where it helps and where it does not."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from steadyscore.cli import main
from steadyscore.errors import InputError
from steadyscore.machine.schemas import read_as
from steadyscore.models.card import Card, model_card, read_card
from tests.helpers.pools import a_card

LONG = "ranks as its first stage does, " + "in so many words, " * 8 + "twice."


def test_findings_are_read_drawn_and_shown_whole(tmp_path, capsys):
    findings = [
        {"collection": "dl19", "helps": True, "sentence": "nDCG@10 +0.05 [+0.01, +0.09] against BM25."},
        {"collection": "news", "helps": False, "sentence": LONG},
    ]
    (tmp_path / "card.json").write_text(a_card(findings=findings))
    text = model_card(read_card(tmp_path))
    assert "## Where it helps\n\n- dl19: nDCG@10 +0.05" in text
    assert "## Where it does not\n\n- news: ranks as" in text
    assert main(["adapter", "show", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "helps on dl19" in shown
    assert "does not help on news" in shown
    assert LONG in shown


def test_a_finding_without_a_verdict_is_refused(tmp_path):
    (tmp_path / "card.json").write_text(a_card(findings=[{"collection": "dl19", "helps": "perhaps"}]))
    with pytest.raises(InputError, match="findings"):
        read_card(tmp_path)


def test_the_anchor_and_its_shares_are_shown_where_they_are_not_the_usual_ones():
    usual = model_card(read_as(Card, json.loads(a_card(anchor=1.0, preference_share=0.0, grade_share=0.0))))
    assert not [name for name in ("anchor", "preference share", "grade share") if f"| {name} |" in usual]
    other = model_card(
        read_as(Card, json.loads(a_card(anchor=0.5, preference_share=0.25, grade_share=0.125, views=2, shuffle="window")))
    )
    for row in ("anchor | 0.5", "preference share | 0.25", "grade share | 0.125", "views | 2, shuffle window"):
        assert f"| {row} |" in other


def test_a_weight_without_a_convention_is_shown_without_one():
    assert "| weight | 0.5 (pairwise convention) |" in model_card(
        read_as(Card, json.loads(a_card(weight=0.5, weight_convention="pairwise")))
    )
    assert "| weight | 0.5 |" in model_card(read_as(Card, json.loads(a_card(weight=0.5, weight_convention="none"))))


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30) | st.sampled_from(
    [
        "a | b",
        "x\n---\nlicense: mit",
        "[link](javascript:alert(1))",
        "![i](http://x/y.png)",
        "<script>x</script>",
        "`a`",
        "a: b #c",
        "NULL",
        "no",
    ]
)


@settings(deadline=None)
@given(NAMES, NAMES)
def test_a_readme_shows_hostile_names_as_text(model, data):
    card = json.loads(a_card())
    card["base"]["model"], card["data"]["name"], card["licence"] = model, data, data
    text = model_card(read_as(Card, card))
    front, body = re.fullmatch(r"---\n(.*?)\n---\n(.*)", text, re.S).groups()
    assert yaml.safe_load(front) == {
        "base_model": model, "library_name": "peft", "tags": ["steadyscore", "reranking", "order-consistency"], "license": data
    }  # fmt: skip
    tokens = MarkdownIt("commonmark").enable("table").parse(body)
    inside = [inner for token in tokens for inner in token.children or []]
    assert not {"link_open", "image", "html_inline"} & {token.type for token in inside}
    assert not {"html_block", "hr", "blockquote_open"} & {token.type for token in tokens}
    cells = sum(token.type == "td_open" for token in tokens)
    assert cells == 2 * sum(token.type == "tr_open" for token in tokens) - 2
