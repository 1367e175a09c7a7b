from __future__ import annotations

from steadyscore.measures.instability import tau_psi
from steadyscore.studies import validate as validation


def test_the_instrument_recovers_what_is_planted():
    rows = validation.validate().rows
    assert len({row.check for row in rows}) == len(rows) > 20
    assert [row for row in rows if not row.ok] == []


def test_a_broken_instrument_is_noticed(monkeypatch):
    monkeypatch.setattr(validation, "QUERIES", 5)
    monkeypatch.setattr(validation, "tau_psi", lambda *scores: 1 - tau_psi(*scores))
    monkeypatch.setattr(validation, "variance_shares", lambda scores, slots, windows: (1.0, 0.5, 0.5, 0.0))
    failed = {row.check for row in validation.validate().rows if not row.ok}
    assert {"tau_psi, no order effect", "tau_psi, reversal", "slot share, slot effect"} <= failed
