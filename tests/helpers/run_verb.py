"""The command line as a script, for launchers that take one."""

import sys

sys.path.pop(0)  # this folder, whose collections.py is not Python's

from steadyscore.cli import VERBS, main  # noqa: E402

VERBS.setdefault("train", "train")
sys.exit(main())
