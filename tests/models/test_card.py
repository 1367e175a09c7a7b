"""The card of an adapter says where it helps and where it does not."""

from __future__ import annotations

import pytest

from steadyscore.cli import main
from steadyscore.errors import InputError
from steadyscore.models.card import model_card, read_card
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
