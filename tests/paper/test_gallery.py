"""The gallery: one site from finished runs, whole or not at all, with the state of every artifact."""

import csv
import json
import re

import pytest

from steadyscore.cli import main
from steadyscore.errors import InputError
from steadyscore.paper.artifacts import ARTIFACTS
from steadyscore.paper.gallery import origins_of, write_gallery
from steadyscore.paper.scale import choices_from
from steadyscore.paper.work import Store

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

TINY = choices_from("tiny")
NAMES = ("remedies", "taskconfig", "rr-pairflip", "labelcrossing", "batching-latency")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The runs of one small table."""
    folder = tmp_path_factory.mktemp("paper")
    assert main(["reproduce", "run", "rr-pairflip", "--store", str(folder), "--json"]) == 0
    return folder


@pytest.fixture(scope="module")
def site(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "gallery"
    assert main(["reproduce", "gallery", *NAMES, "--store", str(store), "--out", str(folder)]) == 0
    return folder


def test_the_site_has_a_page_for_each_and_files_to_take_away(site):
    names = {file.name for file in site.iterdir()}
    assert names >= {"index.html", "status.json", *(f"{name}.html" for name in NAMES)}
    assert {name for name in names if name.endswith(".tex")} == {f"{name}.tex" for name in NAMES if name != "remedies"}
    with (site / "rr-pairflip.csv").open(encoding="utf-8", newline="") as stream:
        assert len(list(csv.DictReader(stream))) == 30


def test_every_link_leads_to_a_page_of_the_site(site):
    for page in site.glob("*.html"):
        for link in re.findall(r'href="([^"]*)"', page.read_text(encoding="utf-8")):
            assert link == "data:," or link.startswith("#") or (site / link).exists(), (page.name, link)


def test_the_states_are_what_the_store_holds(site):
    states = {state["name"]: state for state in json.loads((site / "status.json").read_text(encoding="utf-8"))}
    assert {name: state["status"] for name, state in states.items()} == {
        "remedies": "diagram",
        "taskconfig": "complete",
        "rr-pairflip": "complete",
        "labelcrossing": "part of it",
        "batching-latency": "nothing yet",
    }
    assert any("1 of 3 seeds are complete" in reason for reason in states["labelcrossing"]["missing"])
    assert states["batching-latency"]["missing"]


def test_pages_say_basis_uncertainty_and_that_graders_are_planted(site):
    page = (site / "rr-pairflip.html").read_text(encoding="utf-8")
    assert "95 % intervals resample" in page
    assert "not a result" in page
    assert "A planted grader in the paper&#39;s prompt, without a model or training" in page
    assert re.search(r'<span class="paper">paper 0\.763</span>', page)
    assert "<script" not in page


def test_the_policy_names_the_one_script_by_its_hash(site):
    import base64
    import hashlib

    page = (site / "index.html").read_text(encoding="utf-8")
    script = re.search(r"<script>(.*)</script>", page, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}" in page or f"script-src 'sha256-{digest}'" in page


def test_a_gallery_takes_the_place_of_an_older_one(store, site, tmp_path):
    folder = tmp_path / "gallery"
    for names in (["taskconfig", "remedies"], ["taskconfig"]):
        write_gallery([ARTIFACTS[name] for name in names], Store(store), TINY, folder)
    assert not (folder / "remedies.html").exists()
    assert [file.name for file in tmp_path.iterdir()] == ["gallery"]


def test_what_cannot_be_written_is_refused_in_one_sentence_and_nothing_is_left(store, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    (tmp_path / "file").write_text("x")
    before = sorted(tmp_path.rglob("*"))
    for arguments, said in (
        (["level", "--out", "new"], "the paper has no table or figure 'level'. Did you mean levels?"),
        (["levels", "--out", "mine"], "holds other files, which the gallery would replace."),
        (["levels", "--out", "file"], "is a file. Name a folder for the gallery."),
        (["levels", "--out", "new", "--store", "nowhere"], "nowhere holds no runs. Run `steadyscore reproduce run all"),
        (["levels", "--out", "new", "--run", "oc-sft/dl19=nowhere"], "runs: folder nowhere does not exist."),
        (["levels", "--out", "new", "--system", "oc=x"], "systems: 'oc' is not in the paper's tables."),
    ):
        place = [str(tmp_path / word) if word in ("mine", "file", "new", "nowhere") else word for word in arguments]
        given = place if "--store" in place else [*place, "--store", str(store)]
        assert main(["reproduce", "gallery", *given]) == 1
        err = capsys.readouterr().err
        assert said in err.replace(f"{tmp_path}/", "")
        assert "Traceback" not in err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_failure_in_the_middle_leaves_the_older_site(store, site, monkeypatch):
    before = {file: file.read_bytes() for file in site.iterdir()}

    def refuse(*_):
        raise InputError("no table today.")

    monkeypatch.setattr("steadyscore.paper.gallery.to_latex", refuse)
    with pytest.raises(InputError, match="no table today"):
        write_gallery([ARTIFACTS["taskconfig"]], Store(store), TINY, site)
    assert {file: file.read_bytes() for file in site.iterdir()} == before


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_a_trained_row_says_prompt_penalty_labels_and_reader(scale):
    sources = dict(origins_of(ARTIFACTS["levels"], choices_from(scale)))
    assert re.search(
        r"^An adapter of .*: objective oc_sft, weight [\d.]+ in the convention '\w+', ramp [\d.]+, 2 views; labels of 1 order by "
        r"its own base; the prompt style 'paper', width \d+\.$",
        sources["OC-SFT"],
    )
    assert "no penalty; labels of 10 orders" in sources["Order-avg."]
    assert sources["First reader"].endswith(", frozen.")
    assert sources["GPT-5.4"] == "no address yet, not trained here."


def test_the_list_says_what_is_missing(store, capsys):
    assert main(["reproduce", "list", "--store", str(store), "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert len(rows) == 47
    assert rows["rr-pairflip"]["missing"] == []
    assert rows["levels"]["status"] == "part of it"
    assert re.fullmatch(r"\d+ of \d+ runs are not scored yet", rows["levels"]["missing"][0])
