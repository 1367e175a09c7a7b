"""A training step as we take it, against the same step taken plainly, on SmolLM2-135M with windows of ten.

ours:   the two views of a window in one forward pass, four logits at the ten slots.
plain:  the same step with one forward pass per view and logits of the whole vocabulary at every position. The figures compare
        ours with this: the LoRA layers (steadyscore.training.student) and what is freed after a step are the same on both sides.
half:   ours, with the frozen base in bfloat16 and the adapter in float32.
peft:   plain, with peft's own LoRA layers, as the step would be written without this package.

LoRA on the upper ten of thirty layers, as a processor can afford; with LoRA on more layers the activations they keep, which are
the same on both sides, weigh more. lab/findings/benchmarks.md has the figures.

    python bench/bench_training.py [--steps 3] [--json FILE]

Each side runs in a process of its own, so that peak memory is its own; the loaded model's memory is part of both. Time is
processor time on one thread, which other programs on the machine hardly change.
The losses of both sides are printed: they must agree.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

WIDTH, CHARS, LAYERS = 10, 300, "20-29"
SIDES = ("ours", "half", "plain", "peft")


def step(engine, prompts, columns, target, plain: bool):
    """Loss of one OC-SFT window after a backward pass."""
    import torch

    from steadyscore.training.objectives import consistency, relevance_anchor

    if plain:
        logits = []
        for prompt in prompts:
            everything = engine.model(input_ids=torch.tensor([(*prompt.prefix, *prompt.body)]), use_cache=False).logits[0].float()
            logits.append(everything.log_softmax(-1)[list(prompt.slots)][:, list(prompt.grade_tokens)])
    else:
        logits = engine.slot_logits(prompts)
    grades = torch.arange(4.0)
    views = torch.stack([row.softmax(-1) @ grades for row in logits])
    views = torch.stack([view[torch.as_tensor(c)] for view, c in zip(views, columns, strict=True)])
    loss = relevance_anchor(views[0], target) + 20.0 * consistency(views)
    loss.backward()
    return float(loss.detach())


def measured(side: str, steps: int) -> dict[str, float]:
    import torch
    from peft import get_peft_model

    from steadyscore.collection import open_collection
    from steadyscore.engines import EngineOptions
    from steadyscore.engines.kinds import open_engine
    from steadyscore.scoring.config import Cut
    from steadyscore.scoring.score import cut_instances
    from steadyscore.scoring.scorer import Scorer, Settings
    from steadyscore.tasks import TASKS
    from steadyscore.training.examples import examples, views
    from steadyscore.training.labels import from_judgements
    from steadyscore.training.recipe import TrainConfig, resolve_plan
    from steadyscore.training.step import trim_memory
    from steadyscore.training.student import add_lora, lora_config

    torch.set_num_threads(1)
    torch.manual_seed(0)
    source = open_collection("passages")
    collection, instances = source.collection, source.instances
    engine = open_engine(
        "smollm2-135m", EngineOptions(device="cpu", dtype="bfloat16" if side == "half" else "float32", share_prefix=False)
    )
    plan = resolve_plan(TrainConfig(dropout=0.0, layers=LAYERS), collection)
    if side == "peft":
        get_peft_model(engine.model, lora_config(plan, engine.model))
    else:
        add_lora(engine, plan)
    scorer = Scorer(engine, TASKS[collection.task], Settings(width=WIDTH, chars=CHARS, instruction=collection.instruction))
    pools = list(cut_instances(instances(), Cut(steps + 1, WIDTH)))
    windows = examples(pools, {i.id: from_judgements(i) for i in pools}, (WIDTH,), teacher_orders=1, seed=0)
    loaded, seconds, losses, tokens = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0.0, [], 0
    for number, example in enumerate(windows):
        shown = views(example, 2, seed=0, epoch=0, shuffled=True)
        prompts = [scorer.prompt(example.instance, view.window) for view in shown]
        target = torch.as_tensor(example.target, dtype=torch.float32)
        began = time.process_time()
        losses.append(step(engine, prompts, [view.columns for view in shown], target, side not in ("ours", "half")))
        trim_memory()
        if number:  # the first step warms up
            seconds += time.process_time() - began
            tokens += sum(map(len, prompts))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds_per_step": seconds / steps,
        "tokens_per_second": tokens / seconds,
        "peak_mb": peak / 1024,
        "step_mb": (peak - loaded) / 1024,
        "loss": sum(losses) / len(losses),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        print(json.dumps(measured(args.side, args.steps)))
        return
    results = {}
    for side in SIDES:
        command = [sys.executable, __file__, "--side", side, "--steps", str(args.steps)]
        results[side] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        print(side, {name: round(value, 3) for name, value in results[side].items()})
    for other in SIDES[1:]:
        against = {
            "speed": results[other]["seconds_per_step"] / results["ours"]["seconds_per_step"],
            "memory": results["ours"]["peak_mb"] / results[other]["peak_mb"],
            "step_memory": results["ours"]["step_mb"] / results[other]["step_mb"],
        }
        print(f"against {other}: speed {against['speed']:.2f}x, peak memory {against['memory']:.0%}, ", end="")
        print(f"memory of the step alone {against['step_memory']:.0%}")
        results[f"against_{other}"] = against
    if args.json:
        with open(args.json, "w") as stream:
            json.dump(results, stream, indent=2)


if __name__ == "__main__":
    main()
