"""The explorer in a real browser: Debian's chromium, against a real server on loopback.

With STEADYSCORE_SHOTS=docs/images the pictures of docs/serving.md are made anew.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.browser import (
    HOSTILE,
    controls,
    fits,
    low_contrast,
    nameless,
    open_details,
    press,
    requested_urls,
    roles,
    save_file,
    set_screen,
    wait_for_cards,
)
from tests.helpers.serving import Double, app_of, listening, model, planted
from tests.helpers.waiting import until

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    variants = (("slot", 0.35, "slot effect"), ("companion", 0.6, "companion effect"), ("slot", 0.002, "weak effect"))
    with listening(app_of(*(planted(effect, size, name=name) for effect, size, name in variants))) as address:
        yield address


def show(browser: Any, address: str, width: int = 1280, scheme: str = "light", still: bool = True) -> None:
    set_screen(browser, width, scheme=scheme, still=still)
    browser.get(address)
    wait_for_cards(browser, 3)


def shown(browser: Any, card: int = 0) -> list[str]:
    return browser.execute_script(
        f"return [...document.querySelectorAll('#cards .card')[{card}].querySelectorAll('li .letter')].map(e => e.textContent)"
    )


def verdicts(browser: Any) -> list[str]:
    return [e.text for e in browser.find_elements("css selector", ".verdict")]


def test_a_shuffle_moves_documents_scores_and_the_kept_set(browser: Any, url: str) -> None:
    show(browser, url)
    assert shown(browser) == list("ABCDEFGH")
    scores = "return [...document.querySelectorAll('.card .value > span:first-child')].slice(0, 8).map(e => e.textContent)"
    before = browser.execute_script(scores)
    changed = set()
    for _ in range(12):
        press(browser, "s")
        assert sorted(shown(browser)) == list("ABCDEFGH")
        assert [shown(browser, card) for card in (1, 2)] == [shown(browser)] * 2, "all scorers see the same order"
        changed |= {i for i, words in enumerate(verdicts(browser)) if "changed" in words}
    assert browser.execute_script(scores) != before
    assert changed == {0, 1}, "the planted scorers change their mind, the steady one does not"
    press(browser, "0")
    assert shown(browser) == list("ABCDEFGH")


def test_documents_are_shown_at_once_and_scorers_as_they_finish(browser: Any) -> None:
    go_on = threading.Event()

    def hesitate(query: str, texts: Sequence[str]) -> list[float]:
        if query != "warm":  # before the server is ready
            go_on.wait(60)
        return [float(len(text)) for text in texts]

    with listening(app_of(planted(name="quick"), model(Double(hesitate), name="slow"))) as address:
        try:
            browser.get(address)
            wait_for_cards(browser, 1)
            assert len(browser.find_elements("css selector", "#cards .waiting li")) == 8, "documents of the one that is scored"
            assert [e.text for e in browser.find_elements("css selector", "#answers h3")] == ["quick"]
        finally:
            go_on.set()
        wait_for_cards(browser, 2)
        assert browser.find_elements("css selector", "#cards .waiting") == []
        answers = [e.text for e in browser.find_elements("css selector", "#answers .answer > p")]
        assert answers[0] != "Yes"
        assert answers[1] == "Yes", "length knows no order"


def test_documents_are_animated_to_their_new_place(browser: Any, url: str) -> None:
    shuffle_and_look = """document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 's', bubbles: true}));
return document.getAnimations().filter(a => a.effect.target.tagName === 'LI').length"""
    show(browser, url, still=False)
    assert browser.execute_script(shuffle_and_look) > 3
    show(browser, url, still=True)
    assert browser.execute_script(shuffle_and_look) == 0


def test_what_the_page_shows_is_what_the_server_says(browser: Any, url: str) -> None:
    import urllib.request

    show(browser, url)
    state = browser.execute_script(
        "return {query: state.pool.query, documents: state.pool.documents, cutoff: state.runs[0].cutoff}"
    )
    body = {
        "model": "slot effect",
        "query": state["query"],
        "documents": state["documents"],
        "decision": {"threshold": state["cutoff"]},
    }
    request = urllib.request.Request(f"{url}/v1/decide", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        kept = json.loads(answer.read())["decision"]["kept"]
    assert verdicts(browser)[0].startswith("keeps " + " ".join(sorted("ABCDEFGH"[i] for i in kept)))


def test_the_slider_and_the_other_decisions(browser: Any, url: str) -> None:
    show(browser, url)
    slide = "const s = document.getElementById('cut-0'); s.value = s.{}; s.dispatchEvent(new Event('input'));"
    browser.execute_script(slide.format("max"))
    assert "nothing" in verdicts(browser)[0]
    browser.execute_script(slide.format("min"))
    assert "A B C D E F G H" in verdicts(browser)[0]
    browser.find_element("css selector", "input[value=top_k]").click()
    assert len(verdicts(browser)[2].split("in the")[0].split()) == 4  # keeps, and three letters
    browser.find_element("css selector", "input[value=pair]").click()
    assert verdicts(browser)[0].startswith("chooses ")
    assert len(browser.find_elements("css selector", "li.rejected")) == 3


def test_everything_can_be_done_from_the_keyboard(browser: Any, url: str) -> None:
    show(browser, url)
    reached = set()
    for _ in range(60):
        press_tab = "return document.activeElement.id || document.activeElement.value || document.activeElement.tagName"
        browser.switch_to.active_element.send_keys("\ue004")
        reached.add(browser.execute_script(press_tab))
    assert {"shuffle", "first", "before", "after", "cut-0", "save-page", "save-data", "score", "orders"} <= reached
    browser.execute_script("document.activeElement.blur()")
    press(browser, "\ue014")
    assert "order 1 of 4" in browser.find_element("id", "place").text
    assert "slot effect keeps" in browser.find_element("id", "spoken").get_attribute("textContent")


def test_nobody_else_is_asked_and_nothing_is_logged(browser: Any, url: str) -> None:
    show(browser, url)
    press(browser, "s")
    asked = requested_urls(browser)
    assert asked
    assert all(address.startswith((url, "data:")) for address in asked)
    assert browser.get_log("browser") == []


def test_hostile_text_is_shown_and_not_obeyed(browser: Any, url: str, downloads: Path) -> None:
    show(browser, url)
    browser.execute_script(
        "document.getElementById('query').value = arguments[0];"
        "document.getElementById('documents').value = arguments[0] + '\\n' + arguments[0] + ' b';"
        "document.getElementById('ask').requestSubmit()",
        HOSTILE,
    )
    until(lambda: HOSTILE in browser.find_element("id", "asked").text)
    wait_for_cards(browser, 3)
    assert browser.title == "steadyscore explorer"
    page = save_file(browser, downloads, "save-page", "html")
    browser.get(page.as_uri())
    wait_for_cards(browser, 3)
    assert browser.title == "steadyscore explorer"
    assert browser.find_element("id", "asked").text == HOSTILE


def test_a_shared_page_opens_from_disk_and_asks_nobody(browser: Any, url: str, downloads: Path) -> None:
    show(browser, url)
    expected = [e.text for e in browser.find_elements("css selector", ".figures dd")]
    kept = json.loads(save_file(browser, downloads, "save-data", "json").read_text())
    assert [run["name"] for run in kept["runs"]] == ["slot effect", "companion effect", "weak effect"]
    page = save_file(browser, downloads, "save-page", "html")
    browser.get_log("performance")
    browser.get(page.as_uri())
    wait_for_cards(browser, 3)
    assert [e.text for e in browser.find_elements("css selector", ".figures dd")] == expected
    press(browser, "s")
    assert "order 1 of 4" in browser.find_element("id", "place").text
    assert all(address.startswith(("file:", "data:")) for address in requested_urls(browser))


@pytest.mark.parametrize("width", [320, 768, 1280])
def test_the_page_never_scrolls_sideways(browser: Any, url: str, width: int) -> None:
    show(browser, url, width)
    assert fits(browser, width)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(browser: Any, url: str, scheme: str) -> None:
    show(browser, url, scheme=scheme)
    press(browser, "s", "s")
    open_details(browser)
    assert low_contrast(browser) == []


def test_controls_and_cards_have_names_for_those_who_listen(browser: Any, url: str) -> None:
    show(browser, url)
    assert {"banner", "main", "contentinfo", "status", "slider", "table"} <= roles(browser)
    assert len(controls(browser)) > 15
    assert nameless(browser) == []


def test_a_server_with_a_token_asks_for_it(browser: Any) -> None:
    with listening(app_of(planted(name="slot effect"), keys=("open sesame",))) as address:
        browser.get(address)
        field = until(lambda: browser.find_element("id", "token-field").is_displayed() and browser.find_element("id", "token"))
        until(lambda: "needs a token" in browser.find_element("id", "state").text)
        field.send_keys("open sesame")
        browser.find_element("id", "score").click()
        wait_for_cards(browser, 1)


@pytest.mark.skipif("STEADYSCORE_SHOTS" not in os.environ, reason="set STEADYSCORE_SHOTS=docs/images to make the pictures anew")
def test_pictures_for_the_docs(browser: Any, url: str) -> None:
    folder = Path(os.environ["STEADYSCORE_SHOTS"])
    folder.mkdir(parents=True, exist_ok=True)
    for name, width, height, scheme in (
        ("light", 1280, 1680, "light"),
        ("dark", 1280, 1680, "dark"),
        ("phone", 390, 1100, "light"),
    ):
        show(browser, url, width, scheme)
        press(browser, *"sss")
        set_screen(browser, width, height, scheme)
        time.sleep(0.3)
        assert browser.save_screenshot(str(folder / f"explorer-{name}.png"))
