#!/bin/sh
# Audit a scorer and hold it to bounds, and to a baseline where there is one. What the GitHub Action and the GitLab template run.
#
#   SCORER, DATA   as `steadyscore audit` takes them
#   OUT            where the run goes (runs/check); BASELINE: a folder with the run of the default branch, may be missing
#   AUDIT, GATE    more flags, such as "--permutations 5 --width 10" and "--min overlap=0.8"
#   MAX_DROP       "overlap=0.05 ndcg@10=0.01": what may be lost against BASELINE
#   SUMMARY        a file that the tables are added to as Markdown (GITHUB_STEP_SUMMARY, else OUT/summary.md)
# Exit codes: 0 every bound holds, 3 one does not, anything else: the check itself failed.
set -eu
out=${OUT:-runs/check}
mkdir -p "$out"
summary=${SUMMARY:-${GITHUB_STEP_SUMMARY:-$out/summary.md}}

# 4: some queries could not be scored. The gate counts them and fails, unless --allow-missing lets them pass.
code=0
# AUDIT, GATE and MAX_DROP are words, so they are not quoted.
# shellcheck disable=SC2086
steadyscore audit --scorer "$SCORER" --data "$DATA" --out "$out" --no-report --format markdown ${AUDIT:-} >>"$summary" || code=$?
[ "$code" = 0 ] || [ "$code" = 4 ] || exit "$code"

drops=
for bound in ${MAX_DROP:-}; do drops="$drops --max-drop $bound"; done
if [ -n "$drops" ] && [ -n "$(find "${BASELINE:-/nonexistent}" -name run.json 2>/dev/null | head -n 1)" ]; then
    drops="--baseline $BASELINE$drops"
elif [ -n "$drops" ]; then
    echo "There is no baseline in '${BASELINE:-}' yet, so no drop was checked." | tee -a "$summary"
    drops=
fi
[ -n "${GATE:-}$drops" ] || exit 0
code=0
# shellcheck disable=SC2086
steadyscore gate "$out" ${GATE:-} $drops --format markdown --junit "$out/gate.xml" >>"$summary" || code=$?
[ "$code" != 3 ] || echo "next: steadyscore audit --scorer '$SCORER' --data '$DATA' --out runs/check ${AUDIT:-}, and open runs/check/report/index.html" >&2
exit "$code"
