"""`steadyscore` with set windows in which no segment sees the others: the pointwise control of a set student.

    python lab/alone.py train --prompt set ...

The windows, tokens, steps and seed are those of the set student; only the sight is missing. What it trains is a scorer of
single candidates, to be audited with --width 1.
"""

from __future__ import annotations

import sys

import numpy as np

from steadyscore.cli import main
from steadyscore.terms import Prompt
from steadyscore.window import set_windows

shown = set_windows.visible_earlier


def visible_earlier(prompt: Prompt, tokens: int) -> np.ndarray:
    return np.zeros_like(shown(prompt, tokens))


if __name__ == "__main__":
    set_windows.visible_earlier = visible_earlier
    sys.exit(main())
