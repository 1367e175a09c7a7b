"""The site of docs/: its pages and links without what builds it, and the whole of it where that is installed (make site)."""

import importlib.util
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.helpers.browser import requested_urls, set_screen
from tests.helpers.paths import ROOT
from tests.helpers.waiting import until


def load_site():
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "docs" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


site = load_site()


def test_every_page_is_in_the_navigation_once():
    listed = [file for pages in site.sections().values() for file in pages.values()]
    pages = [site.place_of(page).as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted({*pages, "repository/lab/LOG.md"} - {"pages.md"})


def test_links_lead_to_the_same_files_from_the_places_that_pages_have_in_the_site(tmp_path):
    site.copy_pages(tmp_path)
    pages = [*tmp_path.rglob("*.md")]
    assert len(pages) > 40
    for page in pages:
        text = site.CODE.sub("", page.read_text(encoding="utf-8"))
        for link in site.LINK.finditer(text):
            path = (link[2] or link[4]).partition("#")[0]
            assert not path or re.match(r"[a-z]+:", path) or (page.parent / path).is_file(), f"{page.name}: {link[0]}"


def test_code_keeps_what_looks_like_a_link():
    text, linked = site.adapt_links("`[a](b.md)` and [c](docs/engines.md#hf)\n```\n[d](e.md)\n```\n", ROOT / "README.md")
    assert text == "`[a](b.md)` and [c](engines.md#hf)\n```\n[d](e.md)\n```\n"
    assert linked == [ROOT / "docs/engines.md"]


def test_a_link_to_nothing_is_found(tmp_path):
    (tmp_path / "index.html").write_text('<a href="other/#there">x</a> <a href="other/#gone">y</a> <img src="none.png">')
    (tmp_path / "other").mkdir()
    (tmp_path / "other/index.html").write_text('<h1 id="there">z</h1>')
    assert site.broken_links(tmp_path) == ["index.html: none.png", "index.html: other/#gone"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    for package in ("zensical", "griffe"):
        pytest.importorskip(package, reason=f"{package} is not installed: make site")
    out = tmp_path_factory.mktemp("site") / "docs"
    live = tmp_path_factory.mktemp("live")
    (live / "index.html").write_text("<!doctype html><title>live</title>")
    site.build(out, {"gallery": live, "demo": live})
    return out


def test_every_public_name_has_an_entry(built):
    import steadyscore

    api = (built / "reference/index.html").read_text(encoding="utf-8")
    measures = (built / "reference-measures/index.html").read_text(encoding="utf-8")
    assert [name for name in steadyscore.__all__ if f'id="{name.lower()}' not in api and name != "measures"] == []
    functions = [name for name in steadyscore.measures.__all__ if f'id="{name.lower()}' not in measures]
    assert [name for name in functions if callable(getattr(steadyscore.measures, name))] == []


@pytest.fixture(scope="module")
def address(built):
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=built)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_the_screen_and_load_nothing_from_elsewhere(browser, address, width):
    for page in ("", "reference/", "measures/order-instability/", "data-format/"):
        set_screen(browser, width)
        browser.get(f"{address}/{page}")
        until(lambda: browser.execute_script("return document.readyState === 'complete'"))
        assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"), page
    assert [url for url in requested_urls(browser) if not url.startswith((address, "data:", "blob:"))] == []


@pytest.mark.browser
def test_the_search_finds_a_page(browser, address):
    from selenium.webdriver.common.keys import Keys

    set_screen(browser, 1280)
    browser.get(f"{address}/")
    browser.find_element("tag name", "body").send_keys(Keys.CONTROL + "k")
    until(lambda: browser.execute_script("return !!document.activeElement.shadowRoot"))
    browser.switch_to.active_element.send_keys("tau_psi")
    until(lambda: "Order instability" in browser.execute_script("return document.activeElement.shadowRoot.textContent"))
