"""A merged model on disk: whole, or as it was. What it scores is in tests/models/test_adapter.py."""

from __future__ import annotations

import errno
import os

import pytest
from safetensors import SafetensorError

from steadyscore.errors import StorageError
from steadyscore.training import adapters

FULL = os.strerror(errno.ENOSPC)


def write_new(folder, refusal=None):
    with adapters._whole_files(folder) as scratch:
        (scratch / "config.json").write_text("new")
        if refusal:
            raise refusal


@pytest.mark.parametrize("refusal", [OSError(errno.ENOSPC, FULL), SafetensorError(FULL)])
def test_a_full_disk_leaves_the_model_that_was_there(tmp_path, refusal):
    (tmp_path / "config.json").write_text("old")
    with pytest.raises(StorageError, match=f"cannot write .*{FULL}"):
        write_new(tmp_path, refusal)
    assert (tmp_path / "config.json").read_text() == "old"
    assert os.listdir(tmp_path) == ["config.json"]


def test_what_is_whole_replaces_what_was_there_and_nothing_else(tmp_path):
    (tmp_path / "config.json").write_text("old")
    (tmp_path / "notes.txt").write_text("mine")
    write_new(tmp_path)
    assert (tmp_path / "config.json").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["config.json", "notes.txt"]
