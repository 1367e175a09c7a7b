"""What several test files share: a tiny chat model, a real one, runs made by a synthetic scorer."""

from __future__ import annotations

import hashlib
import os
import re
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.helpers.browser import browser, chromium, downloads  # noqa: F401
from tests.helpers.models import byte_tokenizer, tiny_causal
from tests.helpers.paths import SHARED
from tests.helpers.pools import some_instances, write_collection

# A job that a shell put in the background ignores Ctrl-C, and one under nohup the hangup; both are tested.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
# How long an example takes, or is drawn, says little beside other work. `make test` draws the same examples every time, whatever
# was drawn before; `make fuzz` draws others (--hypothesis-profile=search). What it finds is written out as an @example.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("repeat", settings.get_profile("search"), derandomize=True, database=None, print_blob=False)
settings.load_profile("repeat")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["STEADYSCORE_DTYPE"] = "float32"  # expected scores must not depend on what the processor computes natively

LONGEST_ID = 120
"""Characters of what stands in brackets behind a test's name."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--order-seed", default="", metavar="N", help="run the files, and the tests of each file, in another order")


def pytest_configure(config: pytest.Config) -> None:
    """A seed is not enough for equal examples: hypothesis also draws from the constants of the modules of this project that are
    imported by then, which are others in each worker and order of the files. `make fuzz` may draw from them.
    """
    if not config.getoption("--hypothesis-profile"):
        pytest.MonkeyPatch().setattr(providers, "is_local_module_file", lambda path: False)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A text as part of a test's id: the beginning of what is visible of it."""
    if isinstance(val, str):
        return " ".join(re.findall(r"[!-\[\]-~]+", val))[:40].strip() or argname
    return None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Refuse bytes and whole files as ids: unreadable, and xdist runs nothing where two workers make others."""
    report = yield
    names = {item.nodeid: item.callspec.id for item in report.result if hasattr(item, "callspec")}
    odd = [node[:200] for node, name in names.items() if len(name) > LONGEST_ID or "\\" in name or not name.isprintable()]
    if odd:
        report.outcome = "failed"
        report.longrepr = "give these tests short readable ids (pytest.param(..., id=...)):\n" + "\n".join(odd)
    return report


@pytest.hookimpl(tryfirst=True)  # so that pytest then brings together what shares a costly fixture
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if seed := config.getoption("order_seed"):

        def draw(text: str) -> str:
            return hashlib.sha256(f"{seed} {text}".encode()).hexdigest()

        items.sort(key=lambda item: (draw(item.nodeid.partition("::")[0]), draw(item.nodeid)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("shared") and not SHARED.is_dir():
        pytest.skip("../shared/data is not here: it is for development, not part of the product")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny chat model on disk, as `hf:<folder>` opens it."""
    folder = tmp_path_factory.mktemp("tiny")
    tiny_causal().save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_engine(tiny_folder: Path):
    from steadyscore.engines.kinds import open_engine

    return open_engine(f"hf:{tiny_folder}")


@pytest.fixture(scope="session")
def smollm2():
    """The embedded model, for the few tests that need a real one."""
    from steadyscore.engines.kinds import open_engine
    from steadyscore.models.embedded import EMBEDDED, is_present

    if not is_present(EMBEDDED["smollm2-135m"]):
        pytest.skip("the embedded model is not in the cache; `make setup` fetches it")
    return open_engine("smollm2-135m")


@pytest.fixture
def collection_file(tmp_path: Path) -> Path:
    return write_collection(tmp_path / "pools.jsonl", some_instances())
