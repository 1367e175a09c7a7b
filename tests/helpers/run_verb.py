"""The command line as a script, for launchers that take one."""

import sys

from steadyscore.cli import VERBS, main

VERBS.setdefault("train", "train")
sys.exit(main())
