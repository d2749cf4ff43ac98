#!/usr/bin/env bash
# Runs under Miri the tests of every file that xtask/unsafe-files.txt marks `miri`, with files in
# memory. That list also says what Miri cannot run, and why: it maps no files, makes no system calls
# but the common ones, runs no C and switches no stacks. Those files are left to AddressSanitizer
# (xtask/sanitize.sh address) and to the tests of the real kernel.
# Usage: xtask/miri.sh [filter of test names ...]
#
# Needs a nightly toolchain (MIRI_TOOLCHAIN, default `nightly`) with the components miri and
# rust-src.
set -euo pipefail
cd "$(dirname "$0")/.."

toolchain=${MIRI_TOOLCHAIN:-nightly}
for component in miri rust-src; do
    if ! rustup component list --toolchain "$toolchain" --installed 2>/dev/null | grep -q "^$component"; then
        echo "the toolchain \`$toolchain\` lacks a component: rustup component add $component --toolchain $toolchain" >&2
        exit 2
    fi
done

filters=("$@")
if [ ${#filters[@]} -eq 0 ]; then
    mapfile -t filters < <(awk '$2 == "miri" { print $3 }' xtask/unsafe-files.txt | sort --unique)
fi

# Clocks are read for real. parking_lot keeps pointers in integers, which is fine and not worth a
# warning each.
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance ${MIRIFLAGS:-}"
# Random tests try a few cases: each costs about a thousand times what it does natively.
export PROPTEST_CASES=${PROPTEST_CASES:-4}
echo "Under Miri: ${filters[*]}"
cargo "+$toolchain" miri test --package isobath --lib --target-dir target/miri -- "${filters[@]}"
