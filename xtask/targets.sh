#!/usr/bin/env bash
# Does the engine compile for the systems that no test runs on? Without LZ4 and Zstandard, whose C
# would need a compiler for each.
# Usage: xtask/targets.sh [target ...]
#
# Needs `rustup`, which installs the standard library of each target (about 25 MB) the first time.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    targets=(
        aarch64-unknown-linux-gnu i686-unknown-linux-gnu
        x86_64-apple-darwin aarch64-apple-darwin
        x86_64-pc-windows-gnu x86_64-pc-windows-msvc
    )
fi
installed=$(rustup target list --installed)
for target in "${targets[@]}"; do
    if ! grep -qx "$target" <<<"$installed"; then
        rustup target add "$target"
    fi
    echo "== $target"
    RUSTFLAGS="-D warnings" cargo check --locked --package isobath --lib --no-default-features \
        --features snappy,tracing,metrics --target "$target" --target-dir target/targets
done
