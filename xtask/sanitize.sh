#!/usr/bin/env bash
# Runs the tests of many threads under ThreadSanitizer or AddressSanitizer: the stress test, and the
# unit tests of memtable, log, caches, background and engine.
# Usage: xtask/sanitize.sh thread|address [filter of unit tests ...]
#
# Needs a nightly toolchain (SANITIZE_TOOLCHAIN, default `nightly`) with the component rust-src: the
# standard library is built along, or its own synchronisation would be unknown and reported. `rustup
# component add rust-src --toolchain nightly` adds it. Linux on x86-64 or aarch64.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizer=${1:-}
case $sanitizer in
thread | address) shift ;;
*)
    echo "usage: xtask/sanitize.sh thread|address [filter of unit tests ...]" >&2
    exit 2
    ;;
esac
filters=("$@")
if [ ${#filters[@]} -eq 0 ]; then
    filters=(memtable:: wal:: cache:: background:: engine::)
fi

toolchain=${SANITIZE_TOOLCHAIN:-nightly}
if ! rustup component list --toolchain "$toolchain" --installed 2>/dev/null | grep -q '^rust-src'; then
    echo "the toolchain \`$toolchain\` with rust-src is needed: rustup component add rust-src --toolchain $toolchain" >&2
    exit 2
fi
host=$(rustc "+$toolchain" -vV | sed -n 's/^host: //p')

# The compressors are C; where clang is, they are instrumented too.
flags="-Zsanitizer=$sanitizer"
if [ "$sanitizer" = thread ]; then
    flags+=" -Cunsafe-allow-abi-mismatch=sanitizer"
    export TSAN_OPTIONS="halt_on_error=1 ${TSAN_OPTIONS:-}"
fi
export RUSTFLAGS="$flags" PROPTEST_CASES=${PROPTEST_CASES:-16}
export CARGO_PROFILE_TEST_OPT_LEVEL=1 CARGO_PROFILE_TEST_DEBUG=line-tables-only
run=(cargo "+$toolchain" test -Zbuild-std --locked --target "$host" --target-dir "target/$sanitizer-sanitizer" --package isobath)
"${run[@]}" --lib -- "${filters[@]}"
"${run[@]}" --test stress
