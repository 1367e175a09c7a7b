"""The documentation holds: generated pages are current, links lead somewhere, commands parse, examples run as printed."""

import importlib.util
import pkgutil
import re
import shlex
import sys

import pytest

from steadyscore.cli import VERBS, main, parser
from steadyscore.measures.registry import MEASURES
from tests.helpers.paths import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def load_build():
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load_build()


def name(page):
    return str(page.relative_to(ROOT))


def fenced(text, *languages):
    """The bodies of the fenced blocks in one of the languages."""
    return [body for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S) if language in languages]


def unfenced(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


# ---- generated pages


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse lays its help out in another way from 3.13 on")
def test_generated_pages_are_current():
    assert [name(page) for page in build.stale()] == [], "run `python docs/build.py`"


def test_the_table_of_the_papers_artifacts_is_current():
    assert build.index_table() in (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8"), "run `python docs/build.py`"


def test_the_readme_takes_two_minutes():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_check_names_the_pages_that_differ(monkeypatch, capsys):
    page = build.DOCS / "measures" / "order-instability.md"
    monkeypatch.setattr(build, "pages", lambda: {page: "something else"})
    monkeypatch.setattr(sys, "argv", ["build.py", "--check"])
    assert build.main() == 1
    assert "docs/measures/order-instability.md is not current" in capsys.readouterr().err


def sections_of_measures():
    """Name of a measure -> its section; measures that differ in their cutoff alone share one."""
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs/measures").glob("*.md") if page.stem != "README"]
    sections = [section.partition("\n") for page in pages for section in re.split(r"^## ", page, flags=re.M)[1:]]
    return {name: body for heading, _, body in sections for name in heading.split(", ")}


def test_every_measure_has_a_section_and_every_section_a_measure():
    assert {*sections_of_measures()} == {*MEASURES}


@pytest.mark.parametrize("measure", MEASURES)
def test_sections_of_measures_are_short_and_whole(measure):
    section = sections_of_measures()[measure]
    for part in ("```text", "\n- ", "```python", "By hand: "):
        assert part in section
    assert len(section.splitlines()) <= 36


@pytest.mark.parametrize("need", build.ELSEWHERE)
def test_a_measure_that_needs_more_than_scores_names_the_flag_that_adds_it(need):
    flag = f"--{need.removesuffix('ed')}"
    assert flag in build.actions(parser("audit"))["audit"].format_help()
    sections = sections_of_measures()
    for measure in (name for name, measure in MEASURES.items() if need in measure.needs):
        assert f"`audit {flag}` adds it." in sections[measure]


def test_an_example_that_is_not_the_value_by_hand_stops_the_build():
    with pytest.raises(SystemExit, match="by hand it is 3"):
        build.worked_example("sum", {"example": "a = 1\na + 1", "check": "3"})


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_action_has_a_heading(verb):
    headings = set(re.findall(r"^#+ (.*)$", (ROOT / "docs/commands.md").read_text(encoding="utf-8"), re.M))
    sub = build.actions(parser(verb))[verb]
    assert {f"steadyscore {verb}", *(f"steadyscore {verb} {action}" for action in build.actions(sub))} <= headings


# ---- links


def anchors(page):
    """The fragments GitHub gives a page's headings."""
    seen = {}
    for heading in re.findall(r"^#+ (.*)$", unfenced(page.read_text(encoding="utf-8")), re.M):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        seen[slug] = seen.get(slug, -1) + 1
        yield f"{slug}-{seen[slug]}" if seen[slug] else slug


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_somewhere(page):
    text = re.sub(r"`[^`\n]*`", "`", unfenced(page.read_text(encoding="utf-8")))  # brackets in code are not links
    targets = re.findall(r"\]\(([^)\s]+)", text) + re.findall(r"(?:src|href)=\"([^\"]+)\"", text)
    broken = []
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        outside = not file.is_relative_to(ROOT)
        if outside or not file.exists() or (fragment and file.suffix == ".md" and fragment not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_the_index_lists_every_page():
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"]({page.name})" not in index] == ["README.md"]


# ---- pointers into the code


def is_in_the_package(name):
    """Whether a file or folder, or a dotted name, exists."""
    if name.endswith((".py", "/")):
        return (ROOT / "src/steadyscore" / name).exists()
    try:
        pkgutil.resolve_name(f"steadyscore.{name}")
    except (AttributeError, ImportError):
        return False
    return True


def test_the_glossary_and_the_protocol_point_to_code_that_exists():
    glossary = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").partition("## Glossary")[2]
    cells = [line.rsplit("|", 2)[1] for line in glossary.splitlines() if line.startswith("| ")]
    lines = re.findall(r"^Code: [^;\n]*", (ROOT / "docs/protocol.md").read_text(encoding="utf-8"), re.M)
    named = [name for text in cells + lines for name in re.findall(r"`([^`]+)`", text)]
    assert len(named) > 45
    assert [name for name in named if not is_in_the_package(name)] == []


def test_a_pointer_to_nothing_is_noticed():
    assert not is_in_the_package("terms.Nothing")
    assert not is_in_the_package("nowhere.py")


# ---- commands in the text


def commands(text):
    """The steadyscore commands of the console blocks, without prompt, continuation, comment and what follows in a pipe."""
    for block in fenced(text, "console", "bash", "sh"):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            if (typed := line.removeprefix("$ ")).startswith("steadyscore "):
                words = shlex.split(typed, comments=True)
                end = next((i for i, word in enumerate(words) if re.fullmatch(r"\d?>+|[|&;]+", word)), len(words))
                yield words[1:end]


def verb_of(words):
    return next((word for word in words if not word.startswith("-")), None)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_in_the_text_use_verbs_and_flags_that_exist(page, capsys):
    wrong = []
    for words in commands(page.read_text(encoding="utf-8")):
        try:
            parser(verb_of(words)).parse_args(words)
        except SystemExit as stop:  # 0: --help and --version
            if stop.code:
                wrong.append((shlex.join(words), capsys.readouterr().err.splitlines()[-1]))
    assert wrong == []


def test_a_command_that_does_not_exist_is_noticed():
    found = list(commands("```bash\n$ steadyscore audit --data x \\\n  --bogus | head  # why\n```\n"))
    assert found == [["audit", "--data", "x", "--bogus"]]
    with pytest.raises(SystemExit):
        parser("audit").parse_args(found[0])


# ---- examples of the help texts


def examples(verb):
    """The commands at the end of a verb's help, as words."""
    sub = build.actions(parser(verb))[verb]
    texts = [sub.epilog, *(action.epilog or "" for action in build.actions(sub).values())]
    lines = dict.fromkeys(line for text in texts for line in text.splitlines() if line.startswith("  steadyscore "))
    return [shlex.split(line)[1:] for line in lines]


FREE = {"report", "compare", "gate", "list", "data"}
"""Verbs that never open a model."""
FREE_STUDIES = {"variance", "plan", "validate"}


STAYING = {"serve", "explore"}
"""Verbs that stay until they are stopped; tests/test_serve_process.py starts and stops them."""


def needs_model(words):
    free = words[0] in FREE or (words[0] == "study" and words[1] in FREE_STUDIES) or "--no-probe" in words
    return not free and not any("synthetic:" in word for word in words)


def all_examples():
    """In the order of VERBS, save that audit comes first: report, compare, gate and plan read its runs."""
    ending = (verb for verb in VERBS if verb not in STAYING)
    return sorted((words for verb in ending for words in examples(verb)), key=lambda words: words[0] != "audit")


def run(words, capsys):
    code = main(words)
    out, err = capsys.readouterr()
    assert code == 0, f"steadyscore {shlex.join(words)} gave {code}:\n{err[-2000:]}"
    return out


def test_examples_without_a_model_run_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # The audit that makes runs/first needs the model; a synthetic scorer stands in for those that only read the run.
    first = next(words for words in examples("audit") if "runs/first" in words)
    run([*("synthetic:slot" if word == "smollm2-135m" else word for word in first), "--no-report"], capsys)
    for words in all_examples():
        if not needs_model(words):
            run(words, capsys)
    # Console blocks of the pages show what these commands print; `...` stands for lines left out.
    (tmp_path / "scores.csv").write_text(fenced((ROOT / "docs/score-files.md").read_text(encoding="utf-8"), "csv")[0])
    for page in ("docs/score-files.md", "docs/planning.md"):
        for block in fenced((ROOT / page).read_text(encoding="utf-8"), "console"):
            typed, *shown = block.splitlines()
            printed = run(shlex.split(typed)[2:], capsys).splitlines()
            assert [line for line in shown if line != "..." and line not in printed] == [], f"{page}: {typed}"


@pytest.mark.model
@pytest.mark.slow
def test_every_example_runs_as_printed(smollm2, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words in all_examples():
        run(words, capsys)


@pytest.mark.model
def test_the_python_page_runs_as_printed(smollm2, tmp_path, monkeypatch):
    """Its blocks are one session: what one defines the next may use."""
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in fenced((ROOT / "docs" / "python-api.md").read_text(encoding="utf-8"), "python"):
        exec(compile(block, "docs/python-api.md", "exec"), names)
    assert names["page"].exists()
    assert names["figure"].svg.startswith("<svg")
