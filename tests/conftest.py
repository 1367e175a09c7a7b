"""What several test files share: a tiny chat model, a real one, runs made by a synthetic scorer."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers.browser import browser, chromium, downloads  # noqa: F401
from tests.helpers.models import byte_tokenizer, tiny_causal
from tests.helpers.paths import SHARED
from tests.helpers.pools import some_instances, write_collection

# A job that a shell put in the background ignores Ctrl-C, and one under nohup the hangup; both are tested.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
# How long an example takes, or is drawn, says little beside other work.
settings.register_profile("shared cores", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared cores")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


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
    from steadyscore.engines.address import open_engine

    return open_engine(f"hf:{tiny_folder}")


@pytest.fixture(scope="session")
def smollm2():
    """The embedded model, for the few tests that need a real one."""
    from steadyscore.engines.address import open_engine
    from steadyscore.models.embedded import EMBEDDED, is_present

    if not is_present(EMBEDDED["smollm2-135m"]):
        pytest.skip("the embedded model is not in the cache; `make setup` fetches it")
    return open_engine("smollm2-135m")


@pytest.fixture
def collection_file(tmp_path: Path) -> Path:
    return write_collection(tmp_path / "pools.jsonl", some_instances())
