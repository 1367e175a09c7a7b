"""Opening models for serving, and what the service does without HTTP."""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from starlette.testclient import TestClient

from steadyscore import __version__
from steadyscore.commands import explore, serve
from steadyscore.engines import EngineOptions
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.local.shared import SharedBases
from steadyscore.errors import InputError, ModelError, UsageError
from steadyscore.measures.measurement import Threshold, measure
from steadyscore.measures.settling import TopKRule
from steadyscore.models.embedded import embedded_scorers
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.serve import service
from steadyscore.serve.batcher import ClientDisconnected, TimedOut
from steadyscore.serve.service import ModelOptions, Presentations, ScoredPool, Service, content_order, instance_of, open_model
from steadyscore.serve.settings import Limits
from steadyscore.tasks import TASKS
from tests.helpers.paths import ROOT
from tests.helpers.pools import a_card
from tests.helpers.serving import DOCUMENTS, QUERY, Double, app_of, model, planted, service_of


def parse(*flags, verb=serve):
    parser = argparse.ArgumentParser()
    verb.arguments(parser)
    return parser.parse_args(flags)


def test_flags_become_settings():
    args = parse(
        "a=synthetic:slot", "synthetic:none", "--width", "3", "--cutoff", "0.5", "--request-timeout", "5", "--max-documents", "7"
    )
    found = serve.server_settings(args, ["m"])
    assert (found.limits.seconds, found.limits.candidates, found.host) == (5.0, 7, "127.0.0.1")
    models = serve.open_models(args.scorers, args)
    assert list(models) == ["a", "synthetic:none"]
    assert models["a"].settings.width == 3
    assert models["a"].cutoff == 0.5


@pytest.mark.parametrize("cutoff", ["nan", "inf", "-inf"])
def test_a_cutoff_that_no_score_can_be_compared_with_is_wrong_usage(cutoff, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(f"--cutoff={cutoff}")
    assert ended.value.code == 2
    assert "is not a finite number" in capsys.readouterr().err


def test_two_scorers_of_one_name_and_a_share_above_one_are_refused():
    args = parse("a=synthetic:slot", "a=synthetic:none")
    with pytest.raises(UsageError, match="two scorers are called a"):
        serve.scorers_by_name(args.scorers)
    with pytest.raises(UsageError, match=r"'=synthetic:slot' lacks a name or a scorer.*\n'a=' lacks"):
        serve.scorers_by_name(["=synthetic:slot", "a="])
    with pytest.raises(SystemExit):
        parse("--monitor", "2")


def test_explore_takes_what_serve_takes():
    args = parse("planted=synthetic:slot:0.3", "--no-browser", "--port", "8123", verb=explore)
    assert args.no_browser
    assert serve.server_settings(args, ["m"]).port == 8123


@pytest.fixture(scope="module")
def adapters(tiny_folder, tmp_path_factory):
    """Two adapters of random weights on the tiny model, as training writes them."""
    import torch
    from peft import LoraConfig, get_peft_model

    folders = []
    for seed in (1, 2):
        engine, folder = open_engine(f"hf:{tiny_folder}"), tmp_path_factory.mktemp(f"adapter{seed}")
        scorer = Scorer(engine, TASKS["response_ranking"], Settings(markers="letters"))
        probe = scorer.prompt(instance_of("q", ["a"]), service.windows([0], 1)[0])
        facts = {
            "base": {"model": str(tiny_folder), "weights": engine.identity()["weights"]},
            "settings": {"width": 4, "chars": 300, "markers": "letters"},
            "task": "response_ranking",
            "prompt_hash": scorer.identity()["prompt_hash"],
            "grade_tokens": list(probe.grade_tokens),
            "cutoff": {"value": 0.37, "overlap": 0.93},
        }
        torch.manual_seed(seed)
        lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        get_peft_model(engine.model, lora).save_pretrained(folder)
        (folder / "card.json").write_text(a_card(**facts))
        folders.append(folder)
    return folders


def test_an_adapter_is_presented_as_it_was_trained(tiny_folder, adapters):
    address = f"hf:{tiny_folder}+{adapters[0]}"
    model = open_model("mine", address)
    assert model.task.name == "response_ranking"
    assert (model.settings.width, model.settings.chars, model.settings.markers) == (4, 300, "letters")
    assert (model.cutoff, model.expected_overlap) == (0.37, 0.93)
    assert open_model("mine", address, ModelOptions(cutoff=0.5)).expected_overlap is None, "it was measured at another cutoff"
    with pytest.raises(ModelError, match="adapter was trained with prompt"):
        open_model("mine", address, ModelOptions(task="passage_reranking"))


def test_adapters_share_a_base_and_keep_their_scores(tiny_folder, adapters):
    """Three models on one copy of the weights score as each would alone, in whatever turn they come, three at a time."""
    addresses = {"plain": f"hf:{tiny_folder}", "one": f"hf:{tiny_folder}+{adapters[0]}", "two": f"hf:{tiny_folder}+{adapters[1]}"}
    args = parse(*(f"{name}={address}" for name, address in addresses.items()), "--task", "response_ranking")
    pool = instance_of(QUERY, DOCUMENTS)
    alone = {}
    for name, address in addresses.items():
        backend = open_engine(address)  # its own copy
        alone[name] = Scorer(backend, TASKS["response_ranking"], Settings(markers="letters", width=4, chars=300)).score(pool)
    assert np.abs(alone["one"] - alone["two"]).max() > 1e-3
    running = Service(lambda: serve.open_models(args.scorers, args), Limits(workers=3))
    models = {name: replace(model, settings=replace(model.settings, markers="letters", width=4, chars=300))
              for name, model in running.models.items()}  # fmt: skip
    assert len({id(model.backend._base.engine.model) for model in models.values()}) == 1

    def one(name):
        with running.batcher.admit(1, 60, name) as admission:
            return name, running.score_orders(models[name], admission, pool, np.arange(4)[None]).scores[0]

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(one, ["plain", "one", "two", "one", "plain", "two"] * 3))
    running.close()
    assert max(np.abs(scores - alone[name]).max() for name, scores in found) <= 1e-5


def test_a_worker_s_replica_is_the_same_tensors_under_other_modules(tiny_folder, adapters):
    bases = SharedBases()
    for address in (f"hf:{tiny_folder}", f"hf:{tiny_folder}+{adapters[0]}"):
        first = bases.open(address, EngineOptions())._base._first
        copied = first.copy_modules()
        ours, theirs = (list(replica.engine.model.parameters()) for replica in (first, copied))
        assert all(a is b for a, b in zip(ours, theirs, strict=True))
        assert not set(first.engine.model.modules()) & set(copied.engine.model.modules())


def test_a_shipped_adapter_decides_by_the_cutoff_of_its_card(tiny_folder, adapters, monkeypatch):
    """Its name stands for base and folder; it shares the base with the model it was trained on."""
    monkeypatch.setattr("steadyscore.models.adapter.shipped_adapters", lambda: {"tiny-oc": adapters[0]})
    bases = SharedBases()
    model, plain = open_model("tiny-oc", "tiny-oc", bases=bases), open_model("tiny", f"hf:{tiny_folder}", bases=bases)
    assert model.backend._base is plain.backend._base
    assert model.backend.identity()["adapter"]["task"] == "response_ranking"
    asked = {"query": QUERY, "documents": DOCUMENTS}
    with TestClient(app_of(model, plain)) as client:
        answer = client.post("/v1/decide", json=asked).json()
        named = client.post("/v1/decide", json=asked | {"decision": {"threshold": 0.37}}).json()
        refused = client.post("/v1/decide", json=asked | {"model": "tiny"})
    assert answer["model"] == "tiny-oc"
    assert (answer["decision"]["cutoff"], answer["decision"]["expected_overlap"]) == (0.37, 0.93)
    assert answer["decision"]["kept"] == named["decision"]["kept"]
    assert "expected_overlap" not in named["decision"]
    assert refused.status_code == 422


def test_what_is_served_by_default_is_embedded():
    assert serve.DEFAULT in embedded_scorers()


@pytest.mark.parametrize(("threads", "workers"), [("", 2), ("1", 6), ("2", 3), ("4", 1), ("8", 1)])
def test_passes_at_the_same_time_fill_the_cores(monkeypatch, threads, workers):
    monkeypatch.setattr("steadyscore.serve.settings.cores", lambda: 6)
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    assert parse().workers == workers


def test_a_worker_takes_its_share_of_the_cores(monkeypatch):
    import torch

    from steadyscore.engines.local.device import share_threads

    asked = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    monkeypatch.setattr("steadyscore.engines.local.device.cores", lambda: 7)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    share_threads(3)
    monkeypatch.delenv("OMP_NUM_THREADS")
    share_threads(1)
    assert asked == [], "the environment states the threads, or one worker has all cores anyway"
    share_threads(3)
    share_threads(9)
    assert asked == [2, 1]


def test_a_folder_that_is_not_an_adapter_is_refused(tiny_folder, tmp_path):
    with pytest.raises(InputError, match="is not an adapter folder"):
        open_model("mine", f"hf:{tiny_folder}+{tmp_path}")


def test_stored_scores_cannot_be_served(monkeypatch):
    monkeypatch.setattr("steadyscore.engines.local.shared.open_engine", lambda address, options: object())
    with pytest.raises(InputError, match="replays stored scores"):
        open_model("old", "scores:old.parquet")


@pytest.mark.parametrize(("asked", "seen"), [(None, "A title\n" + "two\nlines " * 300), (20, "A title two lines tw")])
def test_a_system_is_shown_what_audits_show_it(monkeypatch, asked, seen):
    shown = []
    system = Double(lambda query, texts: [float(len(shown.append(text) or text)) for text in texts])
    monkeypatch.setattr("steadyscore.engines.local.shared.open_engine", lambda address, options: system)
    own, document = open_model("own", "system:own", ModelOptions(chars=asked)), {"title": "A title", "text": "two\nlines " * 300}
    with TestClient(app_of(own)) as client:
        assert client.post("/v1/rerank", json={"query": QUERY, "documents": [document]}).status_code == 200
        assert client.post("/rerank", json={"query": QUERY, "texts": ["two\nlines"]}).status_code == 200
    warm = {"a", "b"}
    assert [text for text in shown if text not in warm] == [seen, "two\nlines" if asked is None else "two lines"]


def test_several_permutations_decide_on_their_mean():
    with_effect = service_of(planted("slot", 0.3))
    model, pool, rule = with_effect.models["planted"], instance_of(QUERY, DOCUMENTS), TopKRule(2)
    with with_effect.batcher.admit(8, 60, model.name) as admission:
        asked = Presentations(8)
        orders = asked.orders(pool)
        found = ScoredPool(model, pool, asked, with_effect.present(model, admission, pool, orders, asked, rule), 0)
        each = with_effect.score_orders(model, admission, pool, orders).scores
    with_effect.close()
    assert np.allclose(found.scores, each.mean(axis=0))
    assert (len(found.scored.scores), found.stopped) == (8, "budget")


def test_an_audit_of_a_pool_leaves_out_what_only_a_collection_has(monkeypatch):
    own, instance = planted(width=4), instance_of(QUERY, DOCUMENTS * 3)
    with closing(service_of(own)) as serving, serving.batcher.admit(64, 10) as admission:
        whole = measure([serving.audit_pool(own, admission, instance, 6).scored], Threshold(cutoff=0.5))
        monkeypatch.setattr("steadyscore.measures.whole.WholeCollection.add_places", lambda *given: pytest.fail("decomposed"))
        audited = serving.audit_pool(own, admission, instance, 6, cutoff=0.5)
    shares = {"slot_share", "window_share", "companion_share"}
    assert audited.measures == pytest.approx(
        {name: float(value[0]) for name, value in whole.values.items()}
        | {name: value for name, value in whole.overall.items() if name not in shares}
    )
    assert audited.slot_profile == pytest.approx(whole.slot_profile)


@pytest.mark.parametrize(("change", "refusal"), [({"deadline": 0.0}, TimedOut), ({"cancelled": True}, ClientDisconnected)])
def test_an_audit_that_nobody_waits_for_is_not_measured(monkeypatch, change, refusal):
    monkeypatch.setattr("steadyscore.serve.service.measure", lambda *given, **how: pytest.fail("measured"))

    presented = []

    def score(query, texts):
        presented.append(texts)
        if len(presented) == 3:
            for name, value in change.items():
                setattr(admission, name, value)
        return [0.5] * len(texts)

    slow = model(Double(score))
    with closing(service_of(slow)) as serving, serving.batcher.admit(3, 10) as admission, pytest.raises(refusal):
        serving.audit_pool(slow, admission, instance_of(QUERY, DOCUMENTS), 2)
    assert len(presented) == 3


def test_the_content_order_is_a_function_of_titles_and_texts():
    texts, titles = ["b", "a", "c", "a", "a", "a"], [None, None, "x", None, "one", "two"]
    pool = list(zip(titles, texts, strict=True))
    there = [pool[i] for i in content_order(instance_of(QUERY, texts, titles))]
    back = [pool[::-1][i] for i in content_order(instance_of(QUERY, texts[::-1], titles[::-1]))]
    assert there == back
    assert sorted(there, key=str) == sorted(pool, key=str)


def test_the_examples_of_deploy_are_commands_that_parse_and_agree():
    import shlex

    import yaml

    deploy = ROOT / "deploy"
    pods = [d for d in yaml.safe_load_all((deploy / "kubernetes.yaml").read_text()) if d["kind"] == "Deployment"]
    template = pods[0]["spec"]["template"]
    [container] = template["spec"]["containers"]
    asked = parse(*container["args"])
    assert asked.host == "0.0.0.0"
    assert template["metadata"]["annotations"]["prometheus.io/scrape"] == "true"
    assert asked.open_metrics, "what is announced to Prometheus needs no token"
    built = (deploy / "Containerfile").read_text()
    assert container["image"] == f"steadyscore:{__version__}"
    assert f"podman build -t {container['image']} " in built
    assert f" {container['image']}\n" in built, "what is run is what was built"
    services = yaml.safe_load((deploy / "compose.yaml").read_text())["services"]
    assert {service["image"] for service in services.values()} == {container["image"]}
    assert all(parse(*service["command"]).host == "0.0.0.0" for service in services.values())
    assert parse(*services["proxy"]["command"]).mitigation == "adaptive:10"
    unit = next(line for line in (deploy / "steadyscore.service").read_text().splitlines() if line.startswith("ExecStart="))
    assert parse(*shlex.split(unit)[2:]).host == "127.0.0.1"
    assert parse(*json.loads(built.strip().splitlines()[-1].removeprefix("CMD "))).api_key_file


def test_a_share_of_the_first_stage_is_in_every_score_that_a_request_gets(adapters, tiny_folder):
    plain = open_model("mine", f"hf:{tiny_folder}")
    mixed = open_model("mine", f"hf:{tiny_folder}", ModelOptions(first_stage=40))
    texts = instance_of("q", ["one", "two", "three", "four"])
    orders = np.array([[0, 1, 2, 3], [3, 1, 0, 2]])
    found = {}
    for name, opened in (("plain", plain), ("mixed", mixed)):
        running = Service(lambda opened=opened: {"m": opened}, Limits())
        with running.batcher.admit(10, 60, "m") as admission:
            found[name] = running.score_orders(opened, admission, texts, orders).scores
            once = running.present(opened, admission, texts, orders[:1], Presentations())
            np.testing.assert_allclose(once.scores, found[name][:1])
        running.close()
    np.testing.assert_allclose(found["mixed"], 0.6 * found["plain"] + 0.4 * np.array([1, 0.75, 0.5, 0.25]))
    own = f"hf:{tiny_folder}+{adapters[0]}"
    assert open_model("mine", own, ModelOptions(first_stage=40)).cutoff is None, "it was fitted on other scores"
    assert open_model("mine", own, ModelOptions(first_stage=40, cutoff=0.5)).cutoff == 0.5
    with pytest.raises(SystemExit):
        parse("m=synthetic:slot", "--first-stage", "100")


def test_the_default_scorer_takes_a_share_of_ranks_unless_it_is_turned_off(adapters, tiny_folder, monkeypatch):
    own = f"hf:{tiny_folder}+{adapters[0]}"
    assert open_model("mine", own).ranked is None, "only the default does"
    monkeypatch.setattr(service, "DEFAULT", own)
    found = open_model("mine", own)
    assert (found.first_stage, found.cutoff, found.expected_overlap) == (None, 0.37, 0.93)
    assert (found.ranked.first_stage, found.ranked.cutoff, found.ranked.expected_overlap) == (30, None, None)
    assert open_model("mine", own, ModelOptions(cutoff=0.5)).ranked.cutoff == 0.5
    assert open_model("mine", own, ModelOptions(first_stage=0)).ranked is None
    assert open_model("mine", own, ModelOptions(first_stage=40)).first_stage == 40


def test_a_model_that_reads_sets_is_examined_once_for_all_workers(tiny_folder, monkeypatch):
    examined = []
    monkeypatch.setattr("steadyscore.engines.local.checks.check_sets", lambda engine, model: examined.append(engine))
    served = open_model("sets", f"hf:{tiny_folder}", ModelOptions(prompt="set"))
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        first, second = (pool.submit(served.scorer().score, instance_of(QUERY, DOCUMENTS)).result() for pool in (one, other))
    assert len(examined) == 1
    np.testing.assert_array_equal(first, second)
