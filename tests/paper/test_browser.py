"""The gallery in a real browser: Debian's chromium, from files, light and dark, on a desk, on a phone and on paper.

With STEADYSCORE_SHOTS=docs/images and STEADYSCORE_GALLERY=site/gallery the pictures of docs/reproduce.md are made anew.
"""

from __future__ import annotations

import base64
import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from steadyscore.cli import main
from tests.helpers.browser import press, requested_urls, set_screen
from tests.helpers.waiting import until
from tests.report.test_browser import CONTRAST, shoot

pytestmark = pytest.mark.browser

PAGES = ("index", "rr-pairflip", "phenomenon")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gallery of a small store: a table and a figure that are complete, others that are not, a diagram."""
    folder = tmp_path_factory.mktemp("gallery")
    store, names = str(folder / "store"), ["phenomenon", "rr-pairflip"]
    assert main(["reproduce", "run", *names, "--store", store, "--seeds", "42", "--json"]) == 0
    given = ["--store", store, "--seeds", "42", "--out", str(folder / "site"), "--json"]
    assert main(["reproduce", "gallery", *names, "remedies", "taskconfig", "batching-latency", "levels", *given]) == 0
    return folder / "site"


def show(browser: Any, site: Path, name: str, width: int = 1280, scheme: str = "light", height: int = 900) -> None:
    set_screen(browser, width, height, scheme)
    browser.get((site / f"{name}.html").as_uri())


def shown(browser: Any) -> list[str]:
    """Numbers of the artifacts that the list shows."""
    script = "return [...document.querySelectorAll('#artifacts > li:not([hidden]) .number')].map(e => e.textContent)"
    found: list[str] = browser.execute_script(script)
    return found


def active(browser: Any) -> str:
    script = "const e = document.activeElement; return e.id || e.getAttribute('href') || e.tagName"
    found: str = browser.execute_script(script)
    return found


@pytest.mark.parametrize("name", PAGES)
def test_no_script_error_and_no_request_that_leaves_the_page(browser: Any, site: Path, name: str) -> None:
    show(browser, site, name)
    requested = requested_urls(browser)
    assert requested
    assert all(url.startswith((site.as_uri(), "data:")) for url in requested)
    assert browser.execute_script("return performance.getEntriesByType('resource').map(r => r.name)") == []
    assert browser.get_log("browser") == []


def test_the_list_is_filtered_and_walked_by_keyboard(browser: Any, site: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    show(browser, site, "index")
    everything = shown(browser)
    press(browser, "/")
    assert active(browser) == "words"
    browser.switch_to.active_element.send_keys("pair flip")
    assert shown(browser) == ["Table 24"]
    assert browser.find_element("id", "count").text == "1 of 6 are shown."
    browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert active(browser) == "rr-pairflip.html"
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert active(browser) == "words"
    assert shown(browser) == everything
    for _ in range(3):
        browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    browser.switch_to.active_element.send_keys(Keys.ARROW_UP)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    until(lambda: browser.current_url.endswith("rr-pairflip.html"))


def test_the_list_is_filtered_by_state(browser: Any, site: Path) -> None:
    show(browser, site, "index")
    browser.find_element("css selector", "#kind option[value=empty]").click()
    assert shown(browser) == ["Table 31"]


def test_focus_is_seen_and_the_skip_link_comes_first(browser: Any, site: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    show(browser, site, "rr-pairflip")
    press(browser, Keys.TAB)
    skip = browser.switch_to.active_element
    assert skip.get_attribute("class") == "skip"
    assert skip.rect["x"] >= 0
    outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_intervals_basis_and_the_papers_values_are_shown_on_request(browser: Any, site: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    show(browser, site, "rr-pairflip")
    look = "return ['.interval', '.basis', '.paper'].map(c => getComputedStyle(document.querySelector('td ' + c)).display)"
    assert browser.execute_script(look) == ["none"] * 3
    for name in ("intervals", "bases", "papers"):
        browser.find_element("id", name).send_keys(Keys.SPACE)
    assert browser.execute_script(look) == ["block"] * 3


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_page_never_scrolls_sideways(browser: Any, site: Path, name: str, width: int) -> None:
    show(browser, site, name, width)
    browser.execute_script("document.querySelectorAll('input[type=checkbox]').forEach(box => box.click())")
    wide, room = browser.execute_script("const e = document.documentElement; return [e.scrollWidth, e.clientWidth]")
    assert wide <= room <= width


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast_and_dark_is_dark(browser: Any, site: Path, name: str, scheme: str) -> None:
    show(browser, site, name, 1280, scheme)
    browser.execute_script("document.querySelectorAll('input[type=checkbox]').forEach(box => box.click())")
    assert browser.execute_script(CONTRAST) == []
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(250, 249, 246)", "dark": "rgb(19, 21, 24)"}[scheme]


@pytest.mark.parametrize("name", PAGES)
def test_landmarks_headings_scopes_and_names_for_those_who_listen(browser: Any, site: Path, name: str) -> None:
    show(browser, site, name)
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    seen = [node for node in tree if not node.get("ignored")]
    assert {"banner", "main", "contentinfo"} <= {node["role"]["value"] for node in seen}
    assert all(node.get("name", {}).get("value") for node in seen if node["role"]["value"] in ("image", "img", "link", "textbox"))
    levels = browser.execute_script("return [...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert browser.execute_script("return document.querySelectorAll('th:not([scope])').length") == 0
    assert browser.execute_script("return document.querySelectorAll('table:not(:has(caption))').length") == 0


def test_no_label_of_a_figure_leaves_its_card_and_the_figure_says_that_it_is_planted(browser: Any, site: Path) -> None:
    show(browser, site, "phenomenon", 390)
    texts = browser.execute_script("return [...document.querySelectorAll('figure svg text')].map(t => t.textContent)")
    assert "planted graders: the shape, not a result" in texts
    outside = browser.execute_script("""
      return [...document.querySelectorAll('figure svg text')].filter(t => {
        const [a, b] = [t.getBoundingClientRect(), t.closest('figure').getBoundingClientRect()];
        return a.left < b.left || a.right > b.right || a.top < b.top || a.bottom > b.bottom; }).map(t => t.textContent)""")
    assert outside == []


def test_paper_shows_the_table_and_not_the_controls(browser: Any, site: Path) -> None:
    show(browser, site, "rr-pairflip", 1280, "dark")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    try:
        look = "return ['nav', '.switches', 'table'].map(c => getComputedStyle(document.querySelector(c)).display)"
        assert browser.execute_script(look) == ["none", "none", "table"]
        assert browser.execute_script("return getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
        printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
        assert printed.startswith(b"%PDF")
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.skipif(
    not {"STEADYSCORE_SHOTS", "STEADYSCORE_GALLERY"} <= os.environ.keys(), reason="set STEADYSCORE_SHOTS and STEADYSCORE_GALLERY"
)
def test_pictures_for_the_docs(browser: Any) -> None:
    shots, gallery = Path(os.environ["STEADYSCORE_SHOTS"]), Path(os.environ["STEADYSCORE_GALLERY"]).resolve()
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    for file, name, width, height, scheme in (
        ("gallery-index", "index", 1100, 900, "light"),
        ("gallery-figure", "amortconsumers", 1100, 1000, "dark"),
        ("gallery-phone", "levels", 390, 900, "light"),
    ):
        show(browser, gallery, name, width, scheme, height)
        shoot(browser, shots / f"{file}.png", 0, width, height)
