#!/bin/sh
# The tables of the articles that the harness descends from, each by one command, and YCSB's. Run it
# on a machine that does nothing else; reports go to data/articles/NAME, tables to standard output.
#
#   cargo build --release -p isobath-bench --features peers
#   docs/results/articles.sh engines       # "TidesDB vs RocksDB: which storage engine is faster?"
#   docs/results/articles.sh durable       # "TidesDB 7 vs RocksDB 10 under sync mode"
#   docs/results/articles.sh standard      # eight threads, ten million operations, small values
#   docs/results/articles.sh large         # sixteen threads, forty and two hundred million
#   docs/results/articles.sh keybench      # the four Lua workloads, 1 to 16 threads, 4 KiB values
#   docs/results/articles.sh transactions  # SmallBank, a small TPC-C, YCSB-F and the suite
#   docs/results/articles.sh ycsb          # YCSB A to F over ten million records, zipfian
#
# From the environment: BENCH (the program), DB (where databases are made), OUT (where reports go),
# ENGINES, REPEATS, SECONDS_EACH, ITEMS, SCALE (of suites), and FLAGS (more flags for each command,
# such as --durability buffered).
set -eu
cd "$(dirname "$0")/../.."

bench=${BENCH:-target/release/isobath-bench}
engines=${ENGINES:-isobath,rocksdb}
repeats=${REPEATS:-5}
name=${1:-}
db=${DB:-data/articles-db}/$name
out=${OUT:-data/articles}/$name
mkdir -p "$out"

# suite NAME MORE...: into $out/NAME.
suite() {
    part=$1
    shift
    # shellcheck disable=SC2086 # flags on purpose
    "$bench" suite "$part" --engine "$engines" --repeat "$repeats" --db "$db/$part" --out "$out/$part" "$@" ${FLAGS:-} >&2
}

# workload NAME MORE...: one database for each engine, every point on it.
workload() {
    part=$1
    shift
    # shellcheck disable=SC2086 # flags on purpose
    "$bench" run "workloads/$part.lua" --engine "$engines" --repeat "$repeats" --load-once --settle \
        --seconds "${SECONDS_EACH:-60}" --db "$db/$part" --out "$out/$part" "$@" ${FLAGS:-} >&2
    find "$db/$part" -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
}

# each_loaded NAME MORE...: a new database for each point, so that the workload can check what it
# leaves.
each_loaded() {
    part=$1
    shift
    # shellcheck disable=SC2086 # flags on purpose
    "$bench" run "workloads/$part.lua" --engine "$engines" --repeat "$repeats" --settle \
        --seconds "${SECONDS_EACH:-60}" --db "$db/$part" --out "$out/$part" "$@" ${FLAGS:-} >&2
    find "$db/$part" -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
}

case $name in
engines) suite engines --scale "${SCALE:-0.1}" ;;
durable) suite durable --scale "${SCALE:-0.1}" --threads 8 ;;
standard)
    suite standard --scale "${SCALE:-1}" --threads 8
    suite small-values --scale "${SCALE:-1}" --threads 8
    ;;
large) suite large --scale "${SCALE:-1}" ;;
keybench)
    items=${ITEMS:-500000}
    for part in mixed cart scan batch; do
        workload $part --threads 1,8,16 --items "$items" --users $((items * 9 / 50)) --value-size 4096 --codec none
    done
    ;;
ycsb)
    for part in ycsb-a ycsb-b ycsb-c ycsb-d ycsb-e ycsb-f; do
        workload $part --threads 1,8 --items "${ITEMS:-10000000}"
    done
    ;;
transactions)
    engines=${ENGINES:-isobath,isobath-locking,rocksdb-optimistic,rocksdb-locking,fjall-optimistic,fjall-single-writer,lmdb}
    suite transactions --scale "${SCALE:-0.1}"
    for part in smallbank tpcc-lite ycsb-f-transactions; do
        each_loaded $part --threads 1,4,8,16
    done
    ;;
*)
    echo "usage: docs/results/articles.sh engines|durable|standard|large|keybench|transactions|ycsb" >&2
    exit 2
    ;;
esac
"$bench" markdown "$out"/*/report.json
