"""The report in a real browser: Debian's chromium, from a file, light and dark, on a desk and on a phone.

With STEADYSCORE_SHOTS=docs/images the pictures of docs/report.md are made anew; with STEADYSCORE_PAGE=runs/demo/report/index.html
also those of the README, of that page.
"""

from __future__ import annotations

import base64
import itertools
import os
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from steadyscore.measures.measurement import Threshold
from steadyscore.report.page import write_report
from steadyscore.results.audit import Audit
from steadyscore.results.load import load_run, load_runs
from tests.helpers.browser import fits, requested_urls, set_screen
from tests.report.test_page import HOSTILE, hostile_collection, read_runs, scored_run

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def audits(tmp_path_factory: pytest.TempPathFactory) -> list[Audit]:
    """Three scorers, one with a long name, on passages, responses and hostile texts, and two with readers on claims."""
    folder = tmp_path_factory.mktemp("browser")
    sources = ("passages", "responses", str(hostile_collection(folder)))
    addresses = ("synthetic:slot:0.3", "synthetic:companion:0.3", "synthetic:slot:0.05")
    names = ("planted", f"hf:somebody/{'a-model-with-a-long-name-' * 4}", "steadier")
    variants = [
        replace(load_run(scored_run(address, source, folder / f"{i}-{j}"), Threshold(cutoff=0.5)), name=names[i])
        for i, address in enumerate(addresses)
        for j, source in enumerate(sources)
    ]
    return [*variants, *load_runs(read_runs(folder), Threshold(cutoff=0.5))]


@pytest.fixture(scope="module")
def page(audits: list[Audit], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(audits, tmp_path_factory.mktemp("page"))


def show(browser: Any, page: Path, width: int, scheme: str = "light", height: int = 900) -> None:
    set_screen(browser, width, height, scheme)
    browser.get(page.as_uri())


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_is_cut_off_and_nothing_scrolls_sideways(browser: Any, page: Path, width: int) -> None:
    show(browser, page, width)
    assert fits(browser, width)
    rooms = browser.execute_script(
        "return [...document.querySelectorAll('table')].map(t => [t.scrollWidth, t.clientWidth, t.parentElement.clientWidth])"
    )
    assert len(rooms) == 9, "two a collection, and the readers'"
    assert all(wide <= own <= room for wide, own, room in rooms)
    cut = """const box = t => t.getBoundingClientRect();
      return [...document.querySelectorAll('th, td, .measures li')].filter(c => box(c).width
        && (c.scrollWidth > c.clientWidth + 1 || box(c).right > innerWidth)).map(c => c.textContent)"""
    assert browser.execute_script(cut) == []


def test_a_first_look_is_a_verdict_folded_cautions_and_six_columns(browser: Any, page: Path, audits: list[Audit]) -> None:
    show(browser, page, 1280)
    columns = "return [...document.querySelectorAll('table[aria-label]')].map(t => t.querySelectorAll('thead th').length)"
    assert browser.execute_script(columns)[::2] == [6] * 4, "between them is why decisions flip"
    for card in browser.find_elements("css selector", ".verdict"):
        assert len(card.find_elements("css selector", ".caution")) <= 2
    folded = browser.execute_script("""
      return [...document.querySelectorAll('.verdict details')].map(d =>
        [d.querySelector('summary').textContent, d.querySelectorAll('li').length, d.open,
         d.querySelector('li').checkVisibility()])""")
    cautions = [(int(head.split()[0]), count) for head, count, *_ in folded if "caution" in head]
    assert cautions
    assert all(told == count > 0 for told, count in cautions)
    assert not any(is_open or is_seen for *_, is_open, is_seen in folded)


def test_the_numbers_of_the_verdict_are_those_of_the_stored_scores(browser: Any, page: Path, audits: list[Audit]) -> None:
    def share_changed(audit: Audit) -> float:
        """Of what either of two orders keeps, the share that only one keeps."""
        kept = [[{i for i, score in enumerate(row) if score >= 0.5} for row in query.permuted] for query in audit.queries]
        pairs = [[(a, b) for a, b in itertools.combinations(sets, 2)] for sets in kept]
        return mean(mean(len(a ^ b) / len(a | b) if a | b else 0 for a, b in each) for each in pairs)

    shares = {audit.name: share_changed(audit) for audit in audits if audit.collection == "passages"}
    assert len({round(share, 2) for share in shares.values()}) == 3
    show(browser, page, 1280)
    card = browser.find_element("css selector", ".verdict")
    changes = card.find_elements("css selector", ".changes li")
    said = [[part.text for part in change.find_elements("tag name", "span")[:2]] for change in changes]
    steadiest, following, last = sorted(shares, key=lambda name: shares[name])
    places = {steadiest: "steadiest", following: "next", last: "least steady"}
    assert [[share.replace("\u00a0", " "), name] for share, name in said] == [
        [f"{100 * shares[name]:.0f} %", f"{name}, {places[name]}"] for name in places
    ]
    lead = card.find_element("css selector", ".lead").text.replace("\u00a0", " ")
    assert lead.startswith(f"Steadiest: {steadiest}. Another order changes {100 * shares[steadiest]:.0f} % of what ")
    assert f"against {100 * shares[following]:.0f} % for {following}. " in lead
    points = 100 * (shares[following] - shares[steadiest])
    assert f"ettled: a difference of {points:.0f} points, 95 % interval " in lead


def test_nothing_is_requested_and_nothing_is_logged(browser: Any, page: Path) -> None:
    show(browser, page, 1280)
    requested = requested_urls(browser)
    assert requested  # the page itself
    assert all(url.startswith(("file://", "data:")) for url in requested)
    assert browser.execute_script("return performance.getEntriesByType('resource').map(r => r.name)") == []
    assert browser.get_log("browser") == []


def test_hostile_text_is_shown_and_not_obeyed(browser: Any, page: Path) -> None:
    show(browser, page, 1280)
    assert browser.title.startswith("steadyscore report")
    assert browser.execute_script("return document.querySelectorAll('script, img').length") == 0
    shown = browser.execute_script("return [...document.querySelectorAll('.asked')].map(e => e.textContent)")
    assert any(text.startswith(HOSTILE) for text in shown)


CONTRAST = """
const linear = x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
const luminance = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => linear(x / 255));
  return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
const ground = e => { for (; e; e = e.parentElement) { const b = getComputedStyle(e).backgroundColor;
  if (!b.endsWith(', 0)') && b !== 'transparent') return b; } return 'rgb(255, 255, 255)'; };
const low = [];
for (const e of document.querySelectorAll('main *, header *, footer *')) {
  if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || e.closest('.sr, desc, title')) continue;
  const style = getComputedStyle(e), colour = e instanceof SVGElement ? style.fill : style.color;
  if (!colour.startsWith('rgb')) continue;
  const [a, b] = [luminance(colour), luminance(ground(e))].sort((x, y) => y - x);
  const large = parseFloat(style.fontSize) >= 24, ratio = (a + .05) / (b + .05);
  if (ratio < (large ? 3 : 4.5)) low.push([e.tagName, e.className.baseVal ?? e.className, e.textContent.slice(0, 30), ratio]);
}
return low;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(browser: Any, page: Path, scheme: str) -> None:
    show(browser, page, 1280, scheme)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.execute_script(CONTRAST) == []


def test_dark_is_dark_and_figures_follow(browser: Any, page: Path) -> None:
    look = """const style = s => getComputedStyle(document.querySelector(s));
      return [style('body').backgroundColor, style('figure svg text').fill]"""
    show(browser, page, 1280, "light")
    light = browser.execute_script(look)
    show(browser, page, 1280, "dark")
    dark = browser.execute_script(look)
    assert light == ["rgb(250, 249, 246)", "rgb(28, 30, 33)"]
    assert dark == ["rgb(19, 21, 24)", "rgb(233, 231, 226)"]


@pytest.mark.parametrize("width", [375, 1280])
def test_chips_stand_in_the_same_place_in_both_rows(browser: Any, page: Path, width: int) -> None:
    show(browser, page, width)
    rows = browser.execute_script("""
      return [...document.querySelectorAll('.chips')].map(r => [...r.children].map(c => {
        const [a, b] = [c.getBoundingClientRect(), r.getBoundingClientRect()];
        return [Math.round(a.left - b.left), Math.round(a.top - b.top)]; }))""")
    assert len(rows) >= 4
    assert all(rows[i] == rows[i + 1] for i in range(0, len(rows), 2))


@pytest.mark.parametrize("width", [375, 1280])
def test_no_label_of_a_figure_leaves_its_card(browser: Any, page: Path, width: int) -> None:
    show(browser, page, width)
    outside = browser.execute_script("""
      return [...document.querySelectorAll('figure svg text')].filter(t => {
        const [a, b] = [t.getBoundingClientRect(), t.closest('figure').getBoundingClientRect()];
        return a.left < b.left || a.right > b.right || a.top < b.top || a.bottom > b.bottom; }).map(t => t.textContent)""")
    assert outside == []


def test_landmarks_headings_and_names_for_those_who_listen(browser: Any, page: Path) -> None:
    show(browser, page, 1280)
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = [node["role"]["value"] for node in tree if not node.get("ignored")]
    assert {"banner", "navigation", "main", "contentinfo"} <= set(roles)
    images = [node for node in tree if not node.get("ignored") and node["role"]["value"] in ("image", "img")]
    assert images
    assert all(node.get("name", {}).get("value") for node in images)
    levels = browser.execute_script("return [...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def shoot(browser: Any, file: Path, top: int, width: int, height: int) -> None:
    """A strip of the page as a picture."""
    clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
    file.write_bytes(base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip})["data"]))


@pytest.mark.skipif("STEADYSCORE_SHOTS" not in os.environ, reason="set STEADYSCORE_SHOTS=docs/images to make the pictures anew")
def test_pictures_for_the_docs(browser: Any, tmp_path: Path) -> None:
    shots = Path(os.environ["STEADYSCORE_SHOTS"])
    shots.mkdir(parents=True, exist_ok=True)
    variants = [
        replace(load_run(scored_run(address, "passages", tmp_path / name), Threshold(cutoff=0.5)), name=name)
        for name, address in {"strong effect": "synthetic:slot:0.3", "weak effect": "synthetic:slot:0.05"}.items()
    ]
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    planted = write_report(variants, tmp_path / "page")
    for name, width, height, scheme in (
        ("light", 1280, 2080, "light"),
        ("dark", 1280, 2080, "dark"),
        ("phone", 390, 1100, "light"),
    ):
        show(browser, planted, width, scheme, height)
        shoot(browser, shots / f"report-{name}.png", 0, width, height)


@pytest.mark.skipif(
    not {"STEADYSCORE_SHOTS", "STEADYSCORE_PAGE"} <= os.environ.keys(), reason="set STEADYSCORE_SHOTS and STEADYSCORE_PAGE"
)
def test_pictures_for_the_readme(browser: Any) -> None:
    shots, page = Path(os.environ["STEADYSCORE_SHOTS"]), Path(os.environ["STEADYSCORE_PAGE"]).resolve()
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    show(browser, page, 1080, height=1080)
    shoot(browser, shots / "report.png", 0, 1080, 1080)
    show(browser, page, 1080, height=3000)  # all that is shot is in view
    top, bottom = browser.execute_script("""
      const rows = [...document.querySelectorAll('.chips')];
      const heading = [...document.querySelectorAll('h3, h4')].find(h => h.textContent.startsWith('The most affected query'));
      return [heading.getBoundingClientRect().top + scrollY - 8, rows[1].getBoundingClientRect().bottom + scrollY + 110]""")
    shoot(browser, shots / "same-query-twice.png", int(top), 1080, int(bottom - top))
