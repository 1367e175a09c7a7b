"""Debian's chromium, driven by selenium: one for all tests of a session, and what they do with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.waiting import until

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
HOSTILE = "<img src=x onerror=document.title='owned'></script><script>document.title='owned'</script>"
"""A text that changes the title of a page which obeys it."""
QUIET = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip


def open_chromium(profile: Path) -> Any:
    """Debian's chromium without a network of its own, with console and requests logged; skips where it is absent."""
    if not (CHROMIUM and DRIVER):
        pytest.skip("chromium and chromedriver are not here: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*QUIET, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER))


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory, downloads: Path) -> Iterator[Any]:
    driver = open_chromium(tmp_path_factory.mktemp("profile"))
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)})
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium: Any) -> Any:
    """The browser on an empty page with empty logs, whatever the test before it left."""
    chromium.get("about:blank")
    for log in ("performance", "browser"):
        chromium.get_log(log)
    return chromium


def set_screen(browser: Any, width: int, height: int = 900, scheme: str = "light", still: bool = True) -> None:
    """Size of the window, a phone's below 500 pixels, and what its user prefers: light or dark, and whether things move."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    features += [{"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"}]
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def wait_for_cards(browser: Any, count: int) -> None:
    """Until the explorer shows a card for each scorer."""
    until(lambda: len(browser.find_elements("css selector", "#cards .card")) == count)


def press(browser: Any, *keys: str) -> None:
    browser.find_element("tag name", "body").send_keys(*keys)


def save_file(browser: Any, downloads: Path, button: str, ending: str) -> Path:
    """The file that a button of the explorer saves."""
    for old in downloads.iterdir():
        old.unlink()
    browser.find_element("id", button).click()
    found = until(lambda: complete_download(downloads, ending))
    assert found
    return found


def complete_download(downloads: Path, ending: str) -> Path | None:
    """The file of that ending, once the browser has written all of it: it first makes an empty file of the final name."""
    if any(downloads.glob("*.crdownload")):
        return None
    return next((path for path in downloads.glob(f"*.{ending}") if path.stat().st_size), None)


def requested_urls(browser: Any) -> list[str]:
    """Every address that was asked for since the log was read last."""
    return [e["params"]["request"]["url"] for e in network_events(browser) if e["method"] == "Network.requestWillBeSent"]


def network_events(browser: Any) -> list[dict[str, Any]]:
    return [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]


def open_details(browser: Any) -> None:
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")


def fits(browser: Any, width: int) -> bool:
    """Whether a page of that width, with everything unfolded, never scrolls sideways."""
    open_details(browser)
    wide, room = browser.execute_script("const e = document.documentElement; return [e.scrollWidth, e.clientWidth]")
    return bool(wide <= room <= width)


# -- who cannot see well, or at all


# Colours are rgb(0..255) or, where they were mixed, color(srgb 0..1).
CONTRAST = """
const linear = x => (x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
const luminance = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => linear(c.startsWith('rgb') ? x / 255 : +x));
  return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
const ground = e => { for (; e; e = e.parentElement) { const b = getComputedStyle(e).backgroundColor;
  if (!/(, 0\\)|\\/ 0\\)|transparent)$/.test(b)) return b; } return 'rgb(255, 255, 255)'; };
const low = [];
for (const e of document.querySelectorAll('main *, header *, footer *')) {
  if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || e.closest('.sr, option')) continue;
  const style = getComputedStyle(e);
  const [a, b] = [luminance(style.color), luminance(ground(e))].sort((x, y) => y - x);
  const enough = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
  if ((a + .05) / (b + .05) < enough) low.push([e.tagName, e.className, e.textContent.slice(0, 30)]);
}
return low;
"""


def low_contrast(browser: Any) -> list[Any]:
    """Elements whose text is hard to read on its ground."""
    found: list[Any] = browser.execute_script(CONTRAST)
    return found


CONTROLS = ("button", "slider", "checkbox", "radio", "spinbutton", "textbox", "combobox", "article", "tab", "tabpanel")


def accessible_nodes(browser: Any) -> list[dict[str, Any]]:
    """What a screen reader is told of."""
    return [n for n in browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"] if not n.get("ignored")]


def roles(browser: Any) -> set[str]:
    return {node["role"]["value"] for node in accessible_nodes(browser)}


def controls(browser: Any) -> list[dict[str, Any]]:
    return [node for node in accessible_nodes(browser) if node["role"]["value"] in CONTROLS]


def nameless(browser: Any) -> list[str]:
    """Roles of controls and cards that a screen reader cannot name."""
    return [node["role"]["value"] for node in controls(browser) if not node.get("name", {}).get("value")]
