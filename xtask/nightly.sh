#!/usr/bin/env bash
# What is too long for every change: every planted bug, long runs of fresh seeds, real deaths,
# fuzzing, models, Miri, sanitizers, mutants. A step that fails does not stop the others; the end
# says which did.
# Usage: xtask/nightly.sh [step ...]
#
# Without arguments all steps run, for about NIGHTLY_MINUTES (default 30) each where a step's length
# can be chosen. Runs add rows to the ledger NIGHTLY_LEDGER (default docs/testing/ledger.tsv). Miri,
# sanitizers and fuzzing need a nightly toolchain; power cuts and failing devices need root, and say
# that they are skipped otherwise.
set -uo pipefail
cd "$(dirname "$0")/.."

minutes=${NIGHTLY_MINUTES:-30}
ledger=${NIGHTLY_LEDGER:-docs/testing/ledger.tsv}
# Simulation of each mutant.
of_each=$((minutes < 10 ? minutes : 10))
fresh=$(date +%s)
all=(simulation controls races metamorphic kills cuts outside room flips fuzz models miri threads addresses known mutants)
steps=("$@")
if [ ${#steps[@]} -eq 0 ]; then
    steps=("${all[@]}")
fi

sim() {
    cargo run --locked --quiet --release -p isobath-sim -- "$@"
}

# Fresh seeds in every profile that there is.
simulation() {
    local profile status=0
    for profile in $(sim run --help | sed -n 's/^ *- \([a-z-]*\):.*/\1/p'); do
        sim run --profile "$profile" --minutes "$minutes" --ledger "$ledger" || status=1
    done
    return $status
}

# Every planted bug, each by the net that is to catch it: those of forged bytes are for the
# decoders' tests.
controls() {
    local status=0
    sim controls || status=1
    cargo test --locked --quiet -p isobath --lib --features simulation -- fuzzing::tests::controls planted_bugs || status=1
    return $status
}

# Transactions on threads of the system: of every kind, and crowds.
races() {
    local dir status=0
    dir=$(mktemp -d)
    sim threads --seconds $((60 * minutes)) --dir "$dir" --ledger "$ledger" || status=1
    sim threads --seconds $((30 * minutes)) --profile crowded --threads 6 --ledger "$ledger" || status=1
    rm -rf "$dir"
    return $status
}
metamorphic() { sim metamorphic --seeds "$fresh..$((fresh + 10 * minutes))" --ledger "$ledger"; }
kills() { sim kill --kills $((1000 * minutes)) --seed "$fresh" --ledger "$ledger"; }
cuts() { sim powercut --cuts $((300 * minutes)) --seed "$fresh" --ledger "$ledger"; }

# Kills and cuts of a program that uses the engine from outside.
outside() {
    local bank=target/release/isobath-bank
    cargo build --locked --release -p isobath-bank &&
        sim kill --kills $((300 * minutes)) --seed "$fresh" --ledger "$ledger" --program $bank &&
        sim powercut --cuts $((200 * minutes)) --seed "$fresh" --ledger "$ledger" --program $bank
}
flips() { sim flip --step 3 --ledger "$ledger"; }
fuzz() { fuzz/run.sh -l "$ledger" $((minutes * 4)); }
miri() { xtask/miri.sh; }
threads() { xtask/sanitize.sh thread; }
addresses() { xtask/sanitize.sh address; }
known() { cargo run --locked -p xtask -- mutants --known --minutes "$of_each"; }
mutants() { cargo run --locked -p xtask -- mutants --count 2 --minutes "$of_each" --seed "$fresh"; }

room() {
    sim enospc --rounds $((10 * minutes)) --seed "$fresh" --ledger "$ledger" &&
        sim enospc --on device --rounds $((10 * minutes)) --seed "$fresh" --ledger "$ledger"
}

models() {
    ISOBATH_MODEL_TIMES=$minutes SHUTTLE_RANDOM_SEED=$fresh ISOBATH_MODEL_LEDGER=$ledger xtask/models.sh
}

failed=()
for step in "${steps[@]}"; do
    if [[ " ${all[*]} " != *" $step "* ]]; then
        echo "there is no step $step, only: ${all[*]}" >&2
        exit 2
    fi
    printf '\n== %s (seed %s)\n' "$step" "$fresh"
    began=$SECONDS
    "$step" || failed+=("$step")
    echo "$step: $((SECONDS - began)) s"
done
if [ ${#failed[@]} -ne 0 ]; then
    printf '\nFailed: %s\n' "${failed[*]}"
    exit 1
fi
printf '\nNothing failed.\n'
