"""Where things stand."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
PACKAGE = ROOT / "src" / "steadyscore"
ASSETS = TESTS / "assets"
SHARED = ROOT.parent / "shared" / "data"
"""Collections for development, which are not part of the product: tests that read them skip where they are absent."""
