"""Many run folders as one value and one frame."""

import steadyscore
from tests.helpers.pools import some_instances


def test_all_complete_runs_below_a_folder_are_one_frame_with_their_settings(tmp_path):
    for seed, width in ((0, 3), (1, 6)):
        out = tmp_path / f"seed{seed}"
        steadyscore.audit(
            "synthetic:slot:0.3", some_instances(6), permutations=3, seed=seed, width=width, out=out, report=False, quiet=True
        )
    unfinished = tmp_path / "later" / "data" / "run"
    unfinished.mkdir(parents=True)
    record = next((tmp_path / "seed0").rglob("run.json"))
    (unfinished / "run.json").write_bytes(record.read_bytes())

    audits = steadyscore.load_all(tmp_path)
    assert audits.unfinished == [unfinished]
    frame = audits.to_pandas()
    assert {(row.seed, row.width) for row in frame.itertuples()} == {(0, 3), (1, 6)}
    assert frame["run"].nunique() == 2
    overlap = frame[frame.measure == "overlap"].set_index("seed")["value"].to_dict()
    assert overlap == {seed: steadyscore.load(tmp_path / f"seed{seed}")[0]["overlap"].value for seed in (0, 1)}
    assert {"variant", "collection", "measure", "value", "low", "high", "queries", "task", "created"} <= {*frame.columns}


def test_frames_of_audits_that_nobody_kept_have_no_folder():
    frame = steadyscore.audit(scores=[[[1, 0], [0, 1]]] * 6, cutoff=0.5).to_pandas()
    assert frame["run"].isna().all()
