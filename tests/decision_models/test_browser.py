"""The explorer's second tab in a real browser: a state asked twice, and both decisions side by side."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steadyscore.serve import operations
from tests.helpers.browser import (
    HOSTILE,
    controls,
    fits,
    low_contrast,
    nameless,
    press,
    requested_urls,
    roles,
    save_file,
    set_screen,
    wait_for_cards,
)
from tests.helpers.serving import app_of, listening, model, planted
from tests.helpers.waiting import until

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def url(tiny_engine: Any) -> Iterator[str]:
    ranked = operations.Example(collection="small", query="a", documents=["a", "b"])  # the first tab scores it meanwhile
    with pytest.MonkeyPatch.context() as patch, listening(app_of(model(tiny_engine, "tiny"), planted(name="scores"))) as address:
        patch.setattr(operations, "examples", lambda: [ranked])
        yield address


def show(browser: Any, address: str) -> None:
    """The second tab with the first example asked as given."""
    set_screen(browser, 1280)
    browser.get(address)
    until(lambda: browser.execute_script("return document.querySelectorAll('#models input').length") == 2)
    browser.find_element("id", "tab-deciding").click()
    wait_for_answer(browser, 1)


def cards(browser: Any) -> list[Any]:
    found: list[Any] = browser.find_elements("css selector", "#case-cards .card")
    return found


def wait_for_answer(browser: Any, count: int) -> None:
    """Until so many cards are shown and nothing is being asked."""
    until(lambda: len(cards(browser)) == count and browser.find_element("id", "case-ask").is_enabled(), 30)


def fill(browser: Any, **fields: str) -> None:
    """Write into fields of the form, and tell the page."""
    browser.execute_script(
        "for (const [id, value] of Object.entries(arguments[0])) { const e = document.getElementById('case-' + id);"
        "e.value = value; for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind)); }",
        fields,
    )


def choose_example(browser: Any, name: str) -> None:
    names = browser.execute_script("return [...document.getElementById('case-example').options].map(o => o.textContent)")
    fill(browser, example=str(names.index(name)))


def ask(browser: Any) -> None:
    browser.execute_script("document.getElementById('case').requestSubmit()")


def shuffle(browser: Any) -> None:
    """Ask again, and wait for the answer."""
    before = browser.execute_script("return decided.results.length")
    press(browser, "s")
    until(lambda: browser.execute_script("return decided.results.length") == before + 1, 30)
    wait_for_answer(browser, 2)


def column(browser: Any, card: int, selector: str) -> list[str]:
    found: list[str] = browser.execute_script(
        "return [...document.querySelectorAll('#case-cards .card')[arguments[0]].querySelectorAll(arguments[1])]"
        ".map(e => e.textContent)",
        card,
        selector,
    )
    return found


def answers(address: str, body: dict[str, Any]) -> dict[str, Any]:
    """What the server says to a request of the other shape."""
    request = urllib.request.Request(f"{address}/v1/systemone", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        found: dict[str, Any] = json.loads(answer.read())["answers"]
    return found


def verdicts(browser: Any) -> list[str]:
    return [e.text for e in browser.find_elements("css selector", "#case-cards .verdict")]


def test_a_list_in_another_order_beside_the_given_one(browser: Any, url: str) -> None:
    show(browser, url)
    assert column(browser, 0, "li .letter") == list("ABCD")
    shuffle(browser)
    order = column(browser, 1, "li .letter")
    assert sorted(order) == list("ABCD") != order
    state = json.loads(browser.execute_script("return JSON.stringify(decided.asked.content)"))  # the driver would sort its keys
    members = state["candidates"]
    shown = {**state, "candidates": [members["ABCD".index(letter)] for letter in order]}
    levels = browser.execute_script("return decided.asked.outcomes")
    questions = {
        m["id"]: {"type": "score", "instructions": f"How relevant to the query is passage {m['id']}?", "criteria": levels}
        for m in members
    }
    said = answers(url, {"model": "tiny", "state": shown, "questions": questions})
    expected = [f"{said[members['ABCD'.index(letter)]['id']]['score']:.2f}" for letter in order]
    assert column(browser, 1, ".value > span:first-child") == expected


def test_what_changed_is_marked_and_the_threshold_asks_nobody(browser: Any, url: str) -> None:
    show(browser, url)
    fill(browser, threshold="0")
    assert verdicts(browser)[0].startswith("keeps A B C D")
    fill(browser, threshold="3.1")
    assert verdicts(browser)[0].startswith("keeps nothing")
    shuffle(browser)
    assert "same decision as given" in verdicts(browser)[1]
    assert browser.find_element("id", "case-tally").text == "1 of 1 decided as given"
    given, again = browser.execute_script("return decided.results.map(r => r.answers.map(a => a.level))")
    most = max(range(4), key=lambda i: abs(given[i] - again[i]))
    assert given[most] != again[most]
    until(lambda: browser.execute_script("return state.runs.length") == 2)  # the first tab asks in the background
    browser.get_log("performance")
    fill(browser, threshold=str((given[most] + again[most]) / 2))
    assert requested_urls(browser) == []
    assert "changed" in verdicts(browser)[1]
    assert "ABCD"[most] in verdicts(browser)[1].split("changed:")[1]
    assert "ABCD"[most] in column(browser, 1, "li.differs .letter")
    assert browser.find_element("id", "case-tally").text == "0 of 1 decided as given"
    assert "changed: " in browser.find_element("id", "case-spoken").get_attribute("textContent")


def test_levels_turned_around_are_put_back(browser: Any, url: str) -> None:
    show(browser, url)
    choose_example(browser, "ticket: answers")
    assert browser.find_element("id", "case-question").get_attribute("value") == "How well does article [a] answer the ticket?"
    state, levels = json.loads(browser.execute_script("return JSON.stringify([readForm().content, readForm().outcomes])"))
    ask(browser)
    wait_for_answer(browser, 1)
    fill(browser, channel="outcomes")
    shuffle(browser)
    assert column(browser, 1, ".outcomes .text") == column(browser, 0, ".outcomes .text")[::-1]
    question = {
        "type": "score",
        "instructions": browser.execute_script("return decided.asked.question"),
        "criteria": levels[::-1],
    }
    said = answers(url, {"model": "tiny", "state": state, "questions": {"q": question}})["q"]["score"]
    assert browser.execute_script("return decided.results[1].answers[0].level") == pytest.approx(3 - said, abs=1e-6)


def test_options_in_another_order(browser: Any, url: str) -> None:
    show(browser, url)
    choose_example(browser, "ticket: team")
    fill(browser, channel="outcomes")
    assert not browser.find_element("id", "case-threshold").is_displayed()
    ask(browser)
    wait_for_answer(browser, 1)
    shuffle(browser)
    assert sorted(column(browser, 1, ".outcomes .text")) == sorted(column(browser, 0, ".outcomes .text"))
    assert column(browser, 1, ".outcomes .text") != column(browser, 0, ".outcomes .text")
    for card, words in enumerate(verdicts(browser)):
        [chosen] = column(browser, card, ".outcomes li.kept .text")
        assert words.startswith(f"chooses {chosen.split(':')[0]}")
    shares = [
        [int(share.rstrip("%")) for share in column(browser, card, ".outcomes .value > span:first-child")] for card in (0, 1)
    ]
    assert all(98 <= sum(each) <= 102 for each in shares)


def test_tabs_and_everything_in_them_by_keyboard_and_by_ear(browser: Any, url: str) -> None:
    show(browser, url)
    shuffle(browser)
    browser.find_element("id", "tab-deciding").send_keys("\ue012")
    assert browser.find_element("id", "ranking").is_displayed()
    assert not browser.find_element("id", "deciding").is_displayed()
    browser.switch_to.active_element.send_keys("\ue014")
    assert browser.find_element("id", "deciding").is_displayed()
    assert len(cards(browser)) == 2, "what was asked is still there"
    reached = []
    for _ in range(8):
        browser.switch_to.active_element.send_keys("\ue004")
        reached.append(browser.execute_script("return document.activeElement.id || document.activeElement.tagName"))
    assert reached[:6] == ["SUMMARY", "case-model", "case-threshold", "case-ask", "case-shuffle", "case-channel"]
    browser.execute_script("document.querySelector('#deciding details').open = true")
    assert {"tablist", "tab", "tabpanel", "status", "list"} <= roles(browser)
    assert len(controls(browser)) > 12
    assert nameless(browser) == []


def test_it_reads_well_in_light_and_dark_and_fits_a_phone(browser: Any, url: str) -> None:
    show(browser, url)
    shuffle(browser)
    for scheme, width in (("light", 1280), ("dark", 320)):
        set_screen(browser, width, scheme=scheme)
        assert fits(browser, width)
        assert low_contrast(browser) == []


def test_hostile_text_is_shown_and_nobody_else_is_asked(browser: Any, url: str) -> None:
    show(browser, url)
    state = {"ticket": HOSTILE, "candidates": [{"id": HOSTILE, "text": HOSTILE}, {"id": "b", "text": "b"}]}
    fill(browser, state=json.dumps(state), question=f"{HOSTILE} {{id}}", kind="choice", outcomes=f"{HOSTILE}\nb: {HOSTILE}")
    ask(browser)
    until(lambda: HOSTILE in browser.find_element("id", "case-asked").text)
    shuffle(browser)
    assert column(browser, 1, "li .text") == ["b", HOSTILE]
    assert browser.title == "steadyscore explorer"
    assert all(address.startswith((url, "data:")) for address in requested_urls(browser))
    assert browser.get_log("browser") == []


MISTAKES: list[tuple[dict[str, str], str]] = [
    ({"state": "{"}, "The state is not JSON"),
    ({"state": '{"candidates": ["a", "b"]}'}, "needs an id"),
    ({"path": "candidates"}, "Write the path of the list as $.candidates"),
    ({"path": "$.nowhere"}, "The state has no list at $.nowhere"),
    ({"outcomes": "one"}, "at least two levels"),
    ({"model": "scores"}, "scores cannot answer typed questions"),
]


def test_a_mistake_is_one_sentence(browser: Any, url: str) -> None:
    show(browser, url)
    for fields, words in MISTAKES:
        choose_example(browser, "passages: each graded")
        fill(browser, **fields)
        ask(browser)
        until(lambda: [e for e in browser.find_elements("css selector", "#case-said.wrong") if words in e.text])  # noqa: B023


def test_one_member_has_no_order(browser: Any, url: str) -> None:
    show(browser, url)
    fill(browser, state='{"candidates": [{"id": "a", "text": "a"}]}')
    ask(browser)
    until(lambda: column(browser, 0, "li .letter") == ["A"])
    press(browser, "s")
    until(lambda: "cannot matter" in browser.find_element("id", "case-said").text)


def test_a_shared_page_is_of_the_ranking_alone(browser: Any, downloads: Path) -> None:
    with listening(app_of(planted(name="scores"))) as address:
        browser.get(address)
        wait_for_cards(browser, 1)
        page = save_file(browser, downloads, "save-page", "html")
    browser.get(page.as_uri())
    wait_for_cards(browser, 1)
    assert not browser.find_element("id", "tabs").is_displayed()
    assert browser.find_elements("id", "deciding") == []
    assert browser.get_log("browser") == []


def test_a_token_is_asked_for_in_either_tab(browser: Any, tiny_engine: Any) -> None:
    with listening(app_of(model(tiny_engine, "tiny"), keys=("open sesame",))) as address:
        browser.get(address)
        browser.find_element("id", "tab-deciding").click()
        field = until(lambda: browser.find_element("id", "token").is_displayed() and browser.find_element("id", "token"))
        field.send_keys("open sesame")
        until(lambda: "needs a token" in browser.find_element("id", "case-said").text)
        field.send_keys("\ue007")
        wait_for_answer(browser, 1)
