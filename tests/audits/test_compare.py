import numpy as np
import pytest

from steadyscore.audits.compare import bounds, contrasts, disagreement
from steadyscore.errors import InputError, UsageError
from steadyscore.measures.measurement import measure
from tests.measures.test_measurement import query


def values(**noise):
    """Variants whose scores move by `noise` between permutations, on two collections."""
    found = {}
    for name, size in noise.items():
        found[name] = {}
        for c in ("one", "two"):
            queries = []
            for i in range(12):
                q = query(i + 100 * (c == "two"), n=10, permutations=6)
                rng = np.random.default_rng(i)
                scores = q.scores[:1] + size * rng.normal(size=q.scores.shape)
                queries.append(
                    type(q)(q.query_id, q.candidate_ids, q.permutations, scores, q.slots, q.windows, relevance=q.relevance)
                )
            found[name][c] = measure(queries)
    return found


def test_a_steadier_variant_is_told_from_its_baseline():
    rows = contrasts(values(shaky=0.5, steady=0.05), "shaky", ["tau_psi", "overlap"])
    tau = next(row for row in rows if row.measure == "tau_psi")
    assert tau.difference.high < 0
    assert (tau.wins, tau.collections) == (2, 2)
    assert tau.adjusted_p < 0.01


def test_a_variant_equals_itself():
    found = values(a=0.3)
    rows = contrasts(found | {"b": found["a"]}, "a", ["tau_psi"])
    assert rows[0].difference[:3] == (0, 0, 0)


def test_only_shared_queries_are_paired():
    found = values(a=0.3, b=0.1)
    short = measure([query(i, n=10, permutations=6) for i in range(4)])
    found["b"]["one"] = short
    assert contrasts(found, "a", ["tau_psi"])[0].difference.queries == 4 + 12


def test_what_cannot_be_compared_is_refused():
    found = values(a=0.3, b=0.1)
    with pytest.raises(InputError, match="no run of 'c'"):
        contrasts(found, "c", ["tau_psi"])
    with pytest.raises(InputError, match="share no collection"):
        contrasts({"a": {"one": found["a"]["one"]}, "b": {"two": found["b"]["two"]}}, "a", ["tau_psi"])


def test_discordance_needs_two_variants():
    found = values(a=0.5, b=0.05)
    assert disagreement(found, "ndcg@10", "overlap")["collections"] == 2
    assert disagreement({"a": found["a"]}, "ndcg@10", "overlap") is None


def test_bounds_are_read_as_typed():
    low, high = bounds(["overlap=0.8"], ["tau_psi=0.1"])
    assert (str(low), str(high)) == ("overlap >= 0.8", "tau_psi <= 0.1")
    assert low.holds(0.8)
    assert not low.holds(0.79)
    assert not high.holds(0.2)


def test_every_bad_bound_is_told_at_once():
    with pytest.raises(UsageError, match=r"unknown measure 'beauty'(.|\n)*write a number"):
        bounds(["beauty=1"], ["tau_psi=low"])
    with pytest.raises(UsageError, match="at least one bound"):
        bounds([], [])
