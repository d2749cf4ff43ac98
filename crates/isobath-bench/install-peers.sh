#!/bin/sh
# Installs what building the peers needs (Debian and Ubuntu): a C++ compiler and cmake, libclang for
# RocksDB's bindings, and the headers of the codecs that TidesDB links from the system.
set -eu
packages="build-essential cmake pkg-config clang libclang-dev liblz4-dev libzstd-dev libsnappy-dev"
if [ "$(id -u)" -eq 0 ]; then sudo=; else sudo=sudo; fi
$sudo apt-get update
# shellcheck disable=SC2086 # a list on purpose
$sudo apt-get install --yes $packages
echo 'Now (RocksDB takes a while; without the flags its package leaves out the instructions for checksums):'
echo '  CXXFLAGS="-msse4.2 -mpclmul" cargo build --release -p isobath-bench --features peers'
