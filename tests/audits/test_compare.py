import json

import numpy as np
import pytest

import steadyscore
from steadyscore.audits.compare import contrasts, disagreement
from steadyscore.errors import InputError
from steadyscore.measures.measurement import measure
from tests.helpers.pools import some_instances
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
    assert disagreement(found, "ndcg@10", "overlap").collections == 2
    assert disagreement({"a": found["a"]}, "ndcg@10", "overlap") is None


# -- the function


def by_length(query, texts):
    return [float(len(text)) for text in texts]


def by_place(query, texts):
    return [len(text) + 9.0 * place for place, text in enumerate(texts)]


@pytest.fixture(scope="module")
def audits():
    scorers = {"steady": by_length, "shaky": by_place}
    return steadyscore.audit(scorers, some_instances(8), permutations=4, match_retention=0.4, quiet=True)


def test_audits_are_compared_with_the_first_unless_a_baseline_is_named(audits):
    comparison = steadyscore.compare(audits)
    assert comparison.baseline == "steady"
    tau = next(row for row in comparison.contrasts if row.measure == "tau_psi")
    assert tau.difference.low > 0
    other = steadyscore.compare(audits, baseline="shaky", measures=["tau_psi"])
    assert other.contrasts[0].difference.value == pytest.approx(-tau.difference.value)


def test_a_comparison_prints_as_a_table_and_is_a_frame(audits):
    comparison = steadyscore.compare(audits[0], audits[1], measures=["tau_psi", "overlap"])
    assert str(comparison).splitlines()[0].split("  ")[0] == "variant"
    assert "minus steady" in str(comparison)
    assert comparison._repr_html_().count("<tr>") == 3
    pytest.importorskip("pandas")
    frame = comparison.to_pandas()
    assert list(frame["measure"]) == ["tau_psi", "overlap"]
    assert {"value", "low", "high", "queries", "adjusted_p", "wins"} <= set(frame.columns)


def test_comparing_folders_gives_what_the_command_gives(tmp_path, capsys):
    from steadyscore.cli import main

    steadyscore.audit(
        ["synthetic:slot:0.3", "synthetic:none"], some_instances(8), permutations=3, out=tmp_path, report=False, quiet=True
    )
    assert main(["compare", str(tmp_path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(steadyscore.compare(tmp_path).to_json()))
    assert list(printed) == ["baseline", "contrasts", "discordance", "missing"]
    assert list(printed["contrasts"][0]) == [
        "variant", "measure", "level", "difference", "adjusted_p", "wins", "collections", "better",
    ]  # fmt: skip
    loaded = steadyscore.load(tmp_path)
    assert steadyscore.compare(loaded).to_json() == steadyscore.compare(tmp_path).to_json()


def test_what_the_function_cannot_compare_is_refused_with_a_sentence(audits):
    other = steadyscore.audit({"third": by_place}, some_instances(8), permutations=4, cutoff=30.0, quiet=True)
    for given, words, sentence in [
        ([], {}, "nothing to compare"),
        ([audits[0]], {}, "only steady is there to compare"),
        ([audits[0], audits[0]], {}, "is given more than once"),
        ([audits, other], {}, "different thresholds"),
        ([audits], {"measures": ["beauty"]}, "unknown measure beauty"),
        ([audits], {"baseline": "nobody"}, "no run of 'nobody'"),
        ([audits], {"serving_permutations": 2}, "for run folders"),
    ]:
        with pytest.raises(InputError, match=sentence):
            steadyscore.compare(*given, **words)
