"""Report and explorer in a real browser when every text they show is hostile: no script runs, no request leaves.

Every field of a run that is not a number holds every payload of a group: markup that runs a script, markup that asks a
counting server, text that ends the context it stands in, and characters that hide or reorder what stands beside them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steadyscore.cli import main
from steadyscore.collection.format import CONTROL
from steadyscore.machine.disk import read_json, write_json
from steadyscore.readers.outputs import write_outputs
from steadyscore.report.templating import show_invisible
from steadyscore.runs.folder import Run
from steadyscore.runs.parts import Parts
from steadyscore.serve import operations
from tests.helpers.browser import network_events, press, save_file, set_screen, wait_for_cards
from tests.helpers.pools import write_collection
from tests.helpers.serving import Double, app_of, listening, model, planted
from tests.helpers.waiting import until
from tests.report.test_page import scored_run

pytestmark = pytest.mark.browser

PAYLOADS = {
    "scripts": (
        "<script>window.pwned = 1</script>",
        "<img src=x onerror=window.pwned=1>",
        "<svg onload=window.pwned=1><animate onbegin=window.pwned=1 attributeName=x dur=1s></svg>",
        "<body onload=window.pwned=1 onpageshow=window.pwned=1>",
        "<details open ontoggle=window.pwned=1>",
        "<input autofocus onfocus=window.pwned=1>",
        "<a href=javascript:window.pwned=1>javascript:window.pwned=1</a>",
        "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
        "<script>document.title='taken'</script><script>alert(1)</script>",
        "[click](javascript:window.pwned=1)",
    ),
    "requests": (
        "<img src={trap}/img srcset='{trap}/srcset 1x'>",
        "<iframe src={trap}/iframe></iframe>",
        "<object data={trap}/object></object><embed src={trap}/embed>",
        "<link rel=stylesheet href={trap}/link><link rel=prefetch href={trap}/prefetch>",
        "<style>body {{ background: url({trap}/style) }} @import '{trap}/import';</style>",
        "<p style='background: url({trap}/inline)'>",
        "<meta http-equiv=refresh content='0; url={trap}/refresh'>",
        "<base href={trap}/base/>",
        "<video src={trap}/video poster={trap}/poster></video><audio src={trap}/audio autoplay></audio>",
        "<svg><image href={trap}/image /><use href={trap}/use#x /></svg>",
        "x, url({trap}/colour)",
        "); background: url({trap}/value)",
        "![image]({trap}/markdown) ![image][1] <{trap}/auto>",
    ),
    "contexts": (
        "</script></style></title></textarea></svg></desc></pre></code></option></select>",
        "<script>window.pwned = 1</script>",
        "]]><script>window.pwned = 1</script>",
        "--><script>window.pwned = 1</script><!--",
        "' onmouseover=window.pwned=1 x='",
        '" autofocus tabindex=1 onfocus=window.pwned=1 x="',
        "{{7*7}} {% for x in () %} ${7*7} #{7*7} <%= 7*7 %> {# gone #}",
        "${window.pwned = 1} `${window.pwned = 1}`",
        "'; window.pwned = 1; // \\\"; window.pwned = 1; // \\u0027",
        "`code` ``more`` | cell | **bold** _slanted_ ~~struck~~ # 1. - \\",
        "&lt;b&gt; &amp;amp; &#60;script&#62; &NotANewEntity;",
        'id="kept" #010101 url(#here) $x_1^2$ \\frac',
        "<plaintext><textarea><noscript><template><xmp><!--",
    ),
    "characters": (
        "separators\u2028window.pwned=1\u2029window.pwned=1\u0085end",
        "reversed \u202e0.33 lla\u202c kept",
        "never closed \u202e\u2067\u202b",
        "closed too often \u202c\u2069\u2069",
        "zero\u200b\u200c\u200d\u2060\ufeffwidth",
        "marks \u200e\u200f\u061c\u05d0\u05d1 \u0627\u0644",
        "stacked z\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307\u0308\u0309\u030a\u030b\u030c",
        "tags \U000e0041\U000e0042 selector \ufe0f private \ue000 beyond \U0010ffff",
        "control \x01\x07\x08\x1b[31mred\x1b[0m \x7f",
        "unbroken" * 40,
    ),
}
"""Group -> payloads; {trap} becomes the address of the counting server."""
GROUPS = tuple(PAYLOADS)


@dataclass
class Trap:
    """A server that nobody may ask."""

    address: str = ""
    hits: list[str] = field(default_factory=list)

    def text(self, group: str) -> str:
        """Every payload of a group."""
        filled = (p.format(trap=self.address) if group == "requests" else p for p in PAYLOADS[group])
        return " ".join(filled)


@pytest.fixture(scope="module")
def trap() -> Iterator[Trap]:
    with set_trap() as made:
        yield made


@contextmanager
def set_trap() -> Iterator[Trap]:
    made = Trap()

    class Count(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.hits.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with serving_on_loopback(Count) as made.address:
        yield made


class serving_on_loopback:
    """An http.server in a thread."""

    def __init__(self, handler: Any):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)

    def __enter__(self) -> str:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __exit__(self, *_: Any) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(autouse=True)
def nothing_asked_before(browser: Any, trap: Trap) -> None:
    trap.hits.clear()


# -- what must hold of every page

FORBIDDEN = ("srcdoc", "srcset", "poster", "action", "formaction", "ping")
ADDRESSES = ("href", "src", "xlink:href", "data")
ELEMENTS = """
const [named] = arguments, kinds = new Map();
const counts = a => a.name.startsWith('on') || named.includes(a.name) || (a.name === 'style' && a.value.includes('url('));
for (const e of document.querySelectorAll('*')) {
  const kind = [e.tagName.toLowerCase(), Object.fromEntries([...e.attributes].filter(counts).map(a => [a.name, a.value]))];
  kinds.set(JSON.stringify(kind), kind);
}
return [...kinds.values()];
"""
"""Every tag with each set of attributes that could run or ask for something."""
REPORT_TAGS = {
    "html", "head", "meta", "title", "link", "style", "body", "a", "header", "h1", "h2", "h3", "h4", "nav", "ul", "ol", "li",
    "main", "section", "article", "div", "p", "span", "b", "strong", "table", "thead", "tbody", "tr", "th", "td", "abbr",
    "details", "summary", "figure", "figcaption", "svg", "desc", "defs", "clippath", "g", "path", "rect", "use", "text",
    "tspan", "i", "dl", "dt", "dd", "pre", "code", "footer",
}  # fmt: skip
EXPLORER_TAGS = {
    "html", "head", "meta", "title", "link", "style", "script", "body", "a", "header", "h1", "h2", "h3", "main", "section",
    "article", "div", "p", "span", "b", "details", "summary", "label", "select", "option", "textarea", "input", "form",
    "fieldset", "legend", "button", "kbd", "ol", "li", "i", "output", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th",
    "td", "footer",
}  # fmt: skip


def assert_nothing_obeyed(browser: Any, trap: Trap, own: tuple[str, ...], tags: set[str], title: str) -> None:
    """No script ran, nothing was asked of anybody else, and nothing hostile became an element or an attribute."""
    assert browser.execute_script("return window.pwned === undefined"), "a script ran"
    assert browser.title.startswith(title)
    assert browser.current_url.startswith(own)
    events = network_events(browser)
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith((*own, "data:", "blob:"))] == []
    assert not [e for e in events if e["method"] == "Page.javascriptDialogOpening"]
    assert trap.hits == []
    assert browser.get_log("browser") == []  # neither an error nor a request that the content policy had to stop
    elements = browser.execute_script(ELEMENTS, [*FORBIDDEN, *ADDRESSES])
    assert {tag for tag, _ in elements} <= tags
    for tag, attributes in elements:
        assert not [name for name in attributes if name.startswith("on") or name in FORBIDDEN], (tag, attributes)
        for name in set(ADDRESSES) & set(attributes):
            assert attributes[name].startswith(("#", "data:,", "/explorer.")), (tag, attributes)
        assert "url(" not in attributes.get("style", "").replace("url(#", ""), (tag, attributes)


def assert_nothing_overflows(browser: Any) -> None:
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    for width in (360, 1280):
        set_screen(browser, width)
        wide, room = browser.execute_script("const e = document.documentElement; return [e.scrollWidth, e.clientWidth]")
        assert wide <= room <= width


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_the_payloads_work_where_nothing_stops_them(browser: Any, tmp_path: Path) -> None:
    with set_trap() as trap:  # its own: requests that come late are nobody else's
        asked = what_payloads_do(browser, trap, tmp_path)
    assert asked["scripts"] == asked["contexts"] == 1
    assert asked["requests"]


def what_payloads_do(browser: Any, trap: Trap, tmp_path: Path) -> dict[str, Any]:
    asked = {}
    for group in ("scripts", "requests", "contexts"):
        page = tmp_path / f"{group}.html"
        page.write_text(f"<!doctype html><meta charset=utf-8><body>{trap.text(group).replace('alert(1)', '')}")
        browser.get(page.as_uri())
        asked[group] = (
            browser.execute_script("return window.pwned") if group != "requests" else until(lambda: len(trap.hits) > 10)
        )
    browser.get("about:blank")
    browser.get_log("browser")
    return asked


# -- the report


def as_id(text: str) -> str:
    """A payload as far as an id may hold it: control characters are refused when the collection is opened."""
    return CONTROL.sub("", text)


def hostile_report(folder: Path, text: str, texts_present: bool = True) -> Path:
    """The page of two scorers of one collection whose every text is hostile."""
    folder = folder / "<img src=x onerror=window.pwned=1> {{7*7}} \u202e"
    folder.mkdir(parents=True)
    candidates = [
        {"id": f"c{c} {as_id(text)}", "text": f"word {c} {text} " + "word " * 30, "title": text, "relevance": c % 2}
        for c in range(6)
    ]
    instances = [
        {"id": f"i{q} {as_id(text)}", "query": f"word {q} {text}", "answers": [text], "candidates": candidates} for q in range(3)
    ]
    header = {"name": f"collection {text}", "task": "multidoc_qa", "instruction": text, "details": {"licence": text, text: text}}
    source = write_collection(folder / "pools.jsonl", instances, **header)
    scores = []
    for name, effect in (("first", "slot:0.3"), ("second", "slot:0.05")):
        run = scored_run(f"synthetic:{effect}", str(source), folder / name)
        scores += [query.permuted for query in run.read_queries()]
        write_outputs(run, f"{text} k=2", {q.query_id: [f"answer {m} {text}" for m in range(4)] for q in run.read_queries()})
        rename(run, name, text)
    if not texts_present:
        source.unlink()
    cutoff = str(np.median(scores))  # among the scores, whatever a text's length does to them: some decision changes
    assert main(["report", str(folder), "--cutoff", cutoff, "--out", str(folder / "report")]) == 0
    return folder / "report" / "index.html"


def rename(run: Run, name: str, text: str) -> None:
    """What an audit of a hostile scorer writes into its run."""
    record = {key: value for key, value in read_json(run.folder / "run.json").items() if key != "sha256"}
    record["name"] = f"{name} {text}"
    record["fingerprint"]["scorer"] = {"kind": text, text: text, "nested": {text: [text]}}
    record["fingerprint"]["prompt_hash"] = f"hash {text}"
    record["command"] = ["steadyscore", "audit", text]
    record["versions"] |= {"engine": text}
    record["capabilities"] = {"gives": "score", "parity": text}
    write_json(run.folder / "run.json", record)
    failed = [{"query_id": f"lost {text}", "reason": f"ValueError: {text}"}]
    cut = {"hostile-000001": [{"query_id": f"cut {text}", "window": 0, "chars": 5}]}
    session = {"id": "hostile", "number": 9, "time": "", "puts": 1, "seconds": 0.0, "scored_by": {"versions": {"engine": text}}}
    for table, more in (("queries", {"failed": failed}), ("scores", {"sessions": [session], "shrunk": cut})):
        parts = Parts(run.folder, table)
        (file,) = parts.files()
        rows, note = parts.read(file)
        file.unlink()
        parts.put(file.stem.partition("-")[0], rows, note | more)


@pytest.mark.parametrize("group", GROUPS)
def test_a_report_of_hostile_texts_shows_them_and_obeys_none(
    browser: Any, trap: Trap, tmp_path: Path, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = trap.text(group)
    page = hostile_report(tmp_path, text)
    browser.get(page.as_uri())
    assert_nothing_obeyed(browser, trap, ("file:///",), REPORT_TAGS, "steadyscore report: collection")
    content = squeezed(browser.execute_script("return document.body.textContent"))
    expected = squeezed(show_invisible(text))
    shown = browser.execute_script("return document.querySelector('.asked').textContent")
    assert squeezed(shown).endswith(expected)
    for words in ("collection", "first", "second", "lost", "ValueError:", "cut", "hash", "engine", "parity"):
        assert f"{words} {expected}" in content, words
    assert sum(f"answer {m} {expected}" in content for m in range(4)) >= 2  # two orders are compared, or more
    assert (
        sum(
            expected in squeezed(e)
            for e in browser.execute_script("return [...document.querySelectorAll('.candidates b')].map(e => e.textContent)")
        )
        == 6
    )
    assert_nothing_overflows(browser)
    with serving_on_loopback(partial(Quiet, directory=str(page.parent))) as address:
        browser.get(f"{address}/index.html")
        assert_nothing_obeyed(browser, trap, ("file:///", address), REPORT_TAGS, "steadyscore report: collection")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None: ...


def test_ids_are_shown_where_texts_are_missing_and_are_not_obeyed(browser: Any, trap: Trap, tmp_path: Path) -> None:
    """One page with the payloads of every group: an id is shown in few places, all of them in the pages above too."""
    text = " ".join(map(trap.text, GROUPS))
    browser.get(hostile_report(tmp_path, text, texts_present=False).as_uri())
    assert_nothing_obeyed(browser, trap, ("file:///",), REPORT_TAGS, "steadyscore report: collection")
    content = squeezed(browser.execute_script("return document.querySelector('main').textContent"))
    for words in ("Query i", "c0", "c5"):
        assert words in content
    assert f"c0 {squeezed(show_invisible(as_id(text)))}" in content
    assert_nothing_overflows(browser)


# -- the explorer


@pytest.fixture
def hostile_examples(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, trap: Trap) -> str:
    text = squeezed(trap.text(request.getfixturevalue("group")).replace("\ufeff", ""))  # white space to a browser
    documents = [f"{n} {text}" for n in range(5)]
    offered = [{"collection": f"{n} {text}", "query": f"query {n} {text}", "documents": documents} for n in range(2)]
    monkeypatch.setattr(operations, "examples", lambda: offered)
    return text


@pytest.mark.parametrize("group", GROUPS)
def test_an_explorer_of_hostile_texts_shows_them_and_obeys_none(
    browser: Any, trap: Trap, downloads: Path, tmp_path: Path, group: str, hostile_examples: str
) -> None:
    text = hostile_examples
    app = app_of(*(planted("slot", size, name=f"model {size} {text}") for size in (0.3, 0.1)))
    with listening(app) as address:
        clean = partial(assert_nothing_obeyed, browser, trap, (address,), EXPLORER_TAGS, "steadyscore explorer")
        browser.get(address)
        wait_for_cards(browser, 2)
        clean()
        press(browser, "s", "s")
        for kind in ("top_k", "pair", "threshold"):
            browser.find_element("css selector", f"input[value={kind}]").click()
        browser.execute_script(
            "document.getElementById('edit').open = true; const e = document.getElementById('example');"
            "e.value = '1'; e.dispatchEvent(new Event('change')); document.getElementById('ask').requestSubmit()"
        )
        until(lambda: browser.find_element("id", "asked").get_attribute("textContent").startswith("query 1 "))
        press(browser, "s")
        clean()
        assert browser.find_element("id", "asked").get_attribute("textContent") == f"query 1 {text}"
        heads = browser.execute_script("return [...document.querySelectorAll('.card h3')].map(e => e.textContent)")
        assert set(heads) == {f"model 0.3 {text}", f"model 0.1 {text}"}
        rows = browser.execute_script("return [...document.querySelectorAll('li .text')].map(e => [e.textContent, e.title])")
        assert sorted(rows[:5]) == [[f"{n} {text}"] * 2 for n in range(5)]
        assert text in browser.find_element("id", "spoken").get_attribute("textContent")
        assert_nothing_overflows(browser)
        page = save_file(browser, downloads, "save-page", "html")
        browser.get(page.as_uri())
        wait_for_cards(browser, 2)
        press(browser, "s")
        assert browser.find_element("id", "asked").get_attribute("textContent") == f"query 1 {text}"
        assert_nothing_obeyed(browser, trap, (address, "file:///"), EXPLORER_TAGS, "steadyscore explorer")


@pytest.mark.parametrize("group", GROUPS)
def test_a_hostile_file_and_a_hostile_failure_are_shown_as_text(
    browser: Any, trap: Trap, tmp_path: Path, group: str, hostile_examples: str
) -> None:
    text = hostile_examples

    def fail(query: str, documents: list[str]) -> Any:
        if query.startswith("query"):  # not when it is warmed up
            raise ValueError(text)
        return [0.0] * len(documents)

    presentation = {"order": [0, 1], "scores": [0.2, 0.8], "slots": [0, 1], "windows": [0, 0]}
    run = {
        "name": f"kept {text}",
        "colour": text,
        "measures": {"tau_psi": 0.5},
        "presentations": [presentation] * 3,
        "threshold": 0.5,
    }
    shared = {"query": f"opened {text}", "documents": [text, f"2 {text}"], "runs": [run | {text: text}]}
    with listening(app_of(model(Double(fail), name="failing"))) as address:
        clean = partial(assert_nothing_obeyed, browser, trap, (address,), EXPLORER_TAGS, "steadyscore explorer")
        browser.get(address)
        [state] = until(lambda: browser.find_elements("css selector", "#state.wrong"))
        assert state.get_attribute("textContent")
        browser.get_log("browser")  # the browser's own line about the answer 5xx
        clean()
        chosen = browser.find_element("id", "file")
        for number, colour in enumerate((text, f"nowhere, url({trap.address}/colour)", f"nowhere), url({trap.address}/colour")):
            kept = run | {"colour": colour, "name": f"kept {number} {text}"}
            (file := tmp_path / f"shared-{number}.json").write_text(json.dumps(shared | {"runs": [kept]}))
            chosen.send_keys(str(file))
            until(lambda: f"kept {number} " in browser.find_element("id", "cards").get_attribute("textContent"))  # noqa: B023
            press(browser, "s")
            clean()
        assert browser.find_element("id", "asked").get_attribute("textContent") == f"opened {text}"
        assert browser.find_element("css selector", ".card h3").get_attribute("textContent") == f"kept 2 {text}"
        broken = tmp_path / "<img src=x onerror=window.pwned=1> \u202e.json"
        broken.write_text(text)
        chosen.send_keys(str(broken))
        until(lambda: "holds no query and documents" in browser.find_element("id", "state").get_attribute("textContent"))
        clean()
