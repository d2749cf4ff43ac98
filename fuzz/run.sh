#!/usr/bin/env bash
# Fuzzes: fuzz/run.sh [-l LEDGER | -c BUG] SECONDS [TARGET ...], each target for so many seconds,
# all targets by default.
#
# Needs a nightly compiler and nothing else: the flags are those that cargo-fuzz would give (which
# works, too). Inputs that lead somewhere new stay in fuzz/corpus/TARGET, what crashed is in
# fuzz/artifacts/TARGET: minimise it with `fuzz/target/*/release/TARGET -minimize_crash=1 FILE`,
# then make it a seed of the target and a test of what failed. With a ledger, what was done is added
# to it, a line for each target. With a bug (by its name in `host/planted.rs`) each target must
# catch it.
set -euo pipefail
cd "$(dirname "$0")/.."

ledger= bug= features=()
case ${1:-} in
-l)
    ledger=$2
    shift 2
    ;;
-c)
    bug=$2 features=(--features controls)
    shift 2
    ;;
esac
seconds=${1:?"usage: fuzz/run.sh [-l LEDGER | -c BUG] SECONDS [TARGET ...]"}
shift
if [ $# -eq 0 ]; then
    mapfile -t targets < <(sed -n 's/^name = "\([a-z_]*\)"$/\1/p' fuzz/Cargo.toml)
else
    targets=("$@")
fi

host=$(rustc +nightly -vV | sed -n 's/^host: //p')
flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer
    -Ccodegen-units=1"
bins=()
for target in "${targets[@]}"; do
    bins+=(--bin "$target")
done
RUSTFLAGS=$flags cargo +nightly build --locked --release --manifest-path fuzz/Cargo.toml --target "$host" "${features[@]}" \
    "${bins[@]}"
ISOBATH_SEEDS=$PWD/fuzz/corpus cargo test --locked --quiet -p isobath --lib fuzzing::tests::write_seeds -- --ignored

if [ -n "$ledger" ]; then
    read -r commit engine < <(cargo run --locked --quiet -p isobath-sim -- ledger --built-from)
fi
# Adds a line to the ledger, if there is one: harness, inputs, seconds, found, counts.
note() {
    [ -z "$ledger" ] || printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$commit" "$@" "$engine" >>"$ledger"
}
# Must fail, and leaves nothing behind.
control() {
    local target=$1 scratch said executions
    scratch=$(mktemp -d)
    if said=$(ISOBATH_PLANT=$bug "fuzz/target/$host/release/$target" "$scratch" "fuzz/corpus/$target" \
        -artifact_prefix="$scratch/" -max_total_time="$seconds" -timeout=20 -print_final_stats=1 -detect_leaks=0 2>&1); then
        echo "$target: $bug NOT CAUGHT in $seconds s"
        status=1
    else
        executions=$(sed -n 's/^stat::number_of_executed_units: *//p' <<<"$said")
        echo "$target: $bug caught after ${executions:?"nothing was run: $said"} executions"
    fi
    rm -r "$scratch"
}

status=0
for target in "${targets[@]}"; do
    if [ -n "$bug" ]; then
        control "$target"
        continue
    fi
    mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
    log=fuzz/artifacts/$target/log
    found=0
    note begun "fuzz $target at $(date +%s%3N) by $$" 0.0 0 ''
    "fuzz/target/$host/release/$target" "fuzz/corpus/$target" -artifact_prefix="fuzz/artifacts/$target/" \
        -max_total_time="$seconds" -rss_limit_mb=1024 -malloc_limit_mb=128 -timeout=20 -print_final_stats=1 \
        -detect_leaks=0 >"$log" 2>&1 || found=1
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    printf '%-15s %12s executions in %s s, %s found\n' "$target" "${executions:-?}" "$seconds" "$found"
    if [ "$found" -ne 0 ]; then
        tail -n 40 "$log"
        status=1
    fi
    note fuzz "$target at $(date -u +%FT%TZ)" "$seconds" "$found" \
        "ended=1 executions=${executions:-0} seconds=$seconds"
done
exit $status
