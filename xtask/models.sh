#!/usr/bin/env bash
# Runs the models of concurrency: every interleaving of the small ones (loom), random schedules of the large ones
# (shuttle); each prints what it explored. Any stable toolchain will do.
# Usage: xtask/models.sh [loom|shuttle] [filter of test names ...]
# ISOBATH_MODEL_TIMES=20 runs so many times the random schedules, SHUTTLE_RANDOM_SEED=7 draws others.
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
for checker in "${checkers[@]}"; do
    # Another `cfg` compiles everything anew, so each checker has a folder of its own. `compact::model` is no such model.
    RUSTFLAGS="--cfg $checker" cargo test --locked --package isobath --lib --target-dir "target/models-$checker" -- \
        "${filters[@]}" --skip compact::model --nocapture --test-threads 1 |
        tee /dev/stderr |
        awk -v checker="$checker" '
            match($0, /model [^ ]+: [0-9]+ executions, [0-9.]+ s/) {
                split(substr($0, RSTART, RLENGTH), words, " ")
                models += 1; executions += words[3]; seconds += words[5]
            }
            END { printf "%s: %d models, %d executions, %.0f s\n", checker, models, executions, seconds }'
done
