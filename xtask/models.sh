#!/usr/bin/env bash
# Runs the models of concurrency: every interleaving of the small ones (loom), random schedules of
# the large ones (shuttle); each prints what it explored. Any stable toolchain will do.
# Usage: xtask/models.sh [loom|shuttle] [filter of test names ...]
#
# ISOBATH_MODEL_TIMES=20 runs so many times the random schedules, SHUTTLE_RANDOM_SEED=7 draws
# others, and ISOBATH_MODEL_LEDGER=docs/testing/ledger.tsv adds a line for each checker there.
set -euo pipefail
cd "$(dirname "$0")/.."

checkers=(loom shuttle)
case ${1:-} in
loom | shuttle)
    checkers=("$1")
    shift
    ;;
esac
filters=("$@")
if [ ${#filters[@]} -eq 0 ]; then
    filters=(model::)
fi

export RUST_BACKTRACE=${RUST_BACKTRACE:-0} CARGO_PROFILE_TEST_OPT_LEVEL=1 CARGO_PROFILE_TEST_DEBUG=line-tables-only

# Sums up what a checker's models say, and prints `models=14 executions=292153`.
sum() {
    awk 'match($0, /model [^ ]+: [0-9]+ executions/) {
            split(substr($0, RSTART, RLENGTH), words, " ")
            models += 1
            executions += words[3]
        }
        END { printf "models=%d executions=%d", models, executions }'
}

# Adds a line to the ledger, if there is one: harness, inputs, seconds, found, counts.
note() {
    [ -z "${ISOBATH_MODEL_LEDGER:-}" ] ||
        printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$commit" "$@" "$engine" >>"$ISOBATH_MODEL_LEDGER"
}

if [ -n "${ISOBATH_MODEL_LEDGER:-}" ]; then
    read -r commit engine < <(cargo run --locked --quiet -p isobath-sim -- ledger --built-from)
fi

failed=0
for checker in "${checkers[@]}"; do
    # Another `cfg` compiles everything anew, so each checker has a folder of its own.
    models=(cargo test --locked --package isobath --lib --target-dir "target/models-$checker")
    export RUSTFLAGS="--cfg $checker"
    "${models[@]}" --no-run
    inputs=$checker
    [ "$checker" = loom ] || inputs+=" seed ${SHUTTLE_RANDOM_SEED:-0} times ${ISOBATH_MODEL_TIMES:-1}"
    note begun "models $inputs at $(date +%s%3N) by $$" 0.0 0 ''
    began=$SECONDS
    status=0
    counts=$("${models[@]}" --quiet -- "${filters[@]}" --nocapture --test-threads 1 |
        tee /dev/stderr | sum) || status=1
    seconds=$((SECONDS - began))
    echo "$checker: $counts seconds=$seconds failed=$status"
    note models "$inputs" "$seconds" "$status" "ended=1 $counts"
    failed=$((failed | status))
done
exit "$failed"
