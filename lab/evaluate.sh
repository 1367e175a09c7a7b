#!/usr/bin/env bash
# Audit a scorer on the lab's evaluation pools, each collection once. Run it again to continue.
#
#   lab/evaluate.sh NAME SCORER CUT...    NAME: of the runs; CUT: lines of the table below; all of them without any
#
# A cut is collection, queries, candidates, permutations; `tune-10` are pools to choose by, all others are evaluations. QUERIES
# and CHARS (default 300) instead of the table's. LAB and PYTHON as in jobs.sh. Scores are kept in lab/kept without any text;
# measure.py measures them again.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LAB=${LAB:-/work/lab} PYTHON=${PYTHON:-/work/venvs/lab/bin/python}
export PYTHONPATH="$here/../src" OMP_NUM_THREADS=${THREADS:-1} TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
cuts="tune-10 96 10 2
dl19-20 43 20 2
dl21-20 53 20 2
hotpotqa-10 24 10 2
2wiki-10 24 10 2
scifact-20 24 20 2
antique-20 24 20 2
climate-20 24 20 2
rmb-5 24 5 2
rmbench-6 24 6 2
autoj-2 291 2 2
dl19-50 43 50 2
dl21-50 53 50 2"
name=$1 scorer=$2
shift 2
mkdir -p "$here/kept"
while read -r cut queries pool permutations; do
  [[ $# == 0 || " $* " == *" $cut "* ]] || continue
  out=$LAB/audits/$cut-$name
  "$PYTHON" -m steadyscore audit --scorer "$scorer" --data "$LAB/pools/${cut%-*}.jsonl" --queries "${QUERIES:-$queries}" --pool "$pool" \
    --permutations "$permutations" --chars "${CHARS:-300}" --keep 0.3 --no-report --out "$out" ${WIDTH:+--width "$WIDTH"}
  cp "$(find "$out" -name scores.parquet | head -1)" "$here/kept/$cut-$name.parquet"
done <<< "$cuts"
