"""What the tests of the folder share."""

from tests.serve.conftest import collect_garbage

__all__ = ["collect_garbage"]
