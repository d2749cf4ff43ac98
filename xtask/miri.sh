#!/usr/bin/env bash
# Runs under Miri the tests of every file that xtask/unsafe-files.txt marks `miri`.
# Usage: xtask/miri.sh [filter of test names ...]
set -euo pipefail
cd "$(dirname "$0")/.."

toolchain=${MIRI_TOOLCHAIN:-nightly}
rustup component add miri rust-src --toolchain "$toolchain"

filters=("$@")
if [ ${#filters[@]} -eq 0 ]; then
    mapfile -t filters < <(awk '$2 == "miri" { print $3 }' xtask/unsafe-files.txt | sort --unique)
fi

# Clocks are read for real. parking_lot keeps pointers in integers, which is fine and not worth a warning each.
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance ${MIRIFLAGS:-}"
# Random tests try a few cases: each costs about a thousand times what it does natively.
export PROPTEST_CASES=${PROPTEST_CASES:-4}
echo "Under Miri: ${filters[*]}"
cargo "+$toolchain" miri test --package isobath --lib --target-dir target/miri -- "${filters[@]}"
