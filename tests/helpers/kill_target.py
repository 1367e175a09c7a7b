"""What tests/runs/test_folder.py kills: a slow audit that says when it starts and never scores a query that is on disk."""

import sys
import time
from pathlib import Path

from steadyscore.collection import open_collection
from steadyscore.runs.folder import Run
from steadyscore.scoring.score import AuditConfig, open_scorer, score_collection

source, folder = sys.argv[1], Path(sys.argv[2])
Run.append.__kwdefaults__["seconds"] = 0.03  # shards often, so that kills fall between, before and inside them

config = AuditConfig(permutations=3, seed=1)
scorer = open_scorer("synthetic:companion:0.3", open_collection(source).collection, config)
on_disk = Run.open(folder).scored_ids() if (folder / "run.json").exists() else set()
real = scorer.score_orders


def slow(instance, orders, permutations):
    assert instance.id not in on_disk, f"{instance.id} was scored twice"
    time.sleep(0.02)
    return real(instance, orders, permutations)


scorer.score_orders = slow
print("ready", flush=True)
score_collection(scorer, source, folder, config)
print("done", flush=True)
