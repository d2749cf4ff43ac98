#!/bin/sh
# Measures the tables of docs/results: the standard suite in parts whose engines promise alike,
# reads on one thread, large values, memtables, sustained rows, a reader beside writers, mixed and
# sustained rows in open loop, threads, memory pressure (as root), transactions, then the four Lua
# workloads on 1, 4 and 8 threads and YCSB; then writes the tables into README.md. Run it on a
# machine that does nothing else.
#
#   cargo build --release -p isobath-bench --features peers
#   docs/results/run.sh                # many hours on two cores: rows of ten seconds, five times each
#   docs/results/run.sh tables         # only the tables again, from the reports of the last run
#
# From the environment: BENCH (the program), DB (where databases are made), OUT (where whole reports
# go), REPEATS, LUA_MINUTES, SCALE, SECONDS_EACH, ITEMS, RECORDS (of YCSB), RATE (of open loops,
# keys a second; all engines must be able to keep it up), FLAGS (more flags for each suite, such as
# --seconds 3), ONLY (parts to measure, by name), ENGINES (in place of those of each part), RESULTS
# (where tables and .csv files go, in place of docs/results).
set -eu
cd "$(dirname "$0")/../.."

bench=${BENCH:-target/release/isobath-bench}
db=${DB:-data/results}
out=${OUT:-data/results-reports}
repeats=${REPEATS:-5}
lua_minutes=${LUA_MINUTES:-120}
scale=${SCALE:-0.1}
seconds=${SECONDS_EACH:-10}
items=${ITEMS:-100000}
records=${RECORDS:-10000000}
rate=${RATE:-20000}
only=${ONLY:-}
results=${RESULTS:-docs/results}

# Rows that write and those that don't are parts of their own: what a write survives must be equal
# where it is compared. Synced rows are named by none of these, as no row may count twice.
writing=write_seq,write_random_b1,write_random_b10,write_random_b100,write_random_b1000,write_random_b10000
writing=$writing,_v64,_v1024,_v4096,write_zipfian,write_timestamp,write_reverse,write_swapped,mixed,delete
reading=read,absent,seek,range,scan
chosen=write_seq_b1,write_seq_b1000,write_random_b1,write_random_b100,write_random_b10000,write_zipfian_b1
chosen=$chosen,write_random_b1_v4096,mixed_uniform,mixed_zipfian,delete_random_b1,delete_random_b1000

# share MINUTES PERCENT: a part's share of the time.
share() { awk -v minutes="$1" -v percent="$2" 'BEGIN { printf "%.3f", minutes * percent / 100 }'; }

# wanted NAME: whether to measure this part.
wanted() {
    [ -z "$only" ] && return
    case ",$only," in *",$1,"*) ;; *) return 1 ;; esac
}

# keep NAME: the figures of a part, to be committed; its page stays in OUT.
keep() {
    cp "$out/$1/report.csv" "$results/$1.csv"
}

# suite NAME SUITE ENGINES ROWS [MORE...]
suite() {
    name=$1 suite=$2 engines=${ENGINES:-$3} rows=$4
    shift 4
    wanted "$name" || return 0
    echo "== $name"
    # shellcheck disable=SC2086 # flags on purpose
    "$bench" suite "$suite" --scale "$scale" --engine "$engines" ${rows:+--rows "$rows"} \
        --repeat "$repeats" --db "$db/$name" --out "$out/$name" "$@" ${FLAGS:-} >"$out/$name.txt" ||
        echo "$name: rows failed, see the report" >&2
    keep "$name"
}

# workload NAME PERCENT ENGINES [MORE...]: each engine is loaded once, then every point runs on that
# database.
workload() {
    name=lua-$1-$4 file=workloads/$1.lua percent=$2 engines=${ENGINES:-$3} durability=$4
    shift 4
    wanted "$name" || return 0
    echo "== $name"
    "$bench" run "$file" --engine "$engines" --threads 1,4,8 --seconds "$seconds" --load-once --settle --durability "$durability" \
        --value-size 4096 --items "$items" --users $((items / 5)) --minutes "$(share "$lua_minutes" "$percent")" \
        --db "$db/$name" --out "$out/$name" "$@" >"$out/$name.txt" ||
        echo "$name: points failed, see the report" >&2
    keep "$name"
    # The configuration stays, the databases go.
    find "$db/$name" -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
}

measure() {
    mkdir -p "$out" "$results"
    suite suite-process standard isobath,rocksdb,rocksdb-tuned "$writing"
    suite suite-reads standard isobath,rocksdb,rocksdb-tuned,tidesdb "$reading"
    suite suite-single single isobath,rocksdb,rocksdb-tuned,lmdb,fjall "$reading,mixed_uniform,mixed_zipfian"
    suite suite-buffered standard isobath,rocksdb,tidesdb,redb "$chosen" --durability buffered
    suite suite-sync standard isobath,rocksdb,rocksdb-tuned,tidesdb sync
    suite suite-others standard isobath,lmdb,fjall,redb "$chosen,read_random,seek_random,range_random_100,sync"
    suite large-values large-values isobath,rocksdb,rocksdb-tuned,fjall ""
    suite memtable memtable isobath,rocksdb,rocksdb-tuned,fjall ""
    suite sustained-process sustained isobath,rocksdb,rocksdb-tuned,rocksdb-universal,fjall ""
    suite sustained-buffered sustained isobath,rocksdb,tidesdb "" --durability buffered
    suite beside-reader beside-reader isobath,rocksdb,rocksdb-tuned,fjall ""
    suite open-mixed standard isobath,rocksdb,lmdb,fjall mixed --rate "$rate"
    suite open-sustained sustained isobath,rocksdb,fjall "" --rate "$rate"
    suite scaling scaling isobath,rocksdb,rocksdb-tuned,fjall ""
    suite memory-pressure memory-pressure isobath,isobath-mapped,rocksdb,rocksdb-tuned ""
    suite transactions transactions \
        isobath,isobath-locking,rocksdb-optimistic,rocksdb-locking,fjall-optimistic,fjall-single-writer,lmdb ""
    workload mixed 22 isobath,rocksdb,lmdb,fjall process
    workload cart 20 isobath,rocksdb,lmdb,fjall process
    workload scan 16 isobath,rocksdb,tidesdb,lmdb,fjall process
    workload batch 18 isobath,rocksdb,lmdb,fjall process --sweep B=64
    workload mixed 8 isobath,tidesdb buffered
    workload cart 8 isobath,tidesdb buffered
    workload batch 8 isobath,tidesdb buffered --sweep B=64
    for letter in a b c d e f; do
        ycsb $letter isobath,rocksdb,lmdb,fjall
    done
}

# ycsb LETTER ENGINES: ten million records, zipfian.
ycsb() {
    name=ycsb-$1
    wanted "$name" || return 0
    echo "== $name"
    "$bench" run "workloads/$name.lua" --engine "${ENGINES:-$2}" --threads 1,4 --seconds "$seconds" --load-once --settle --repeat "$repeats" \
        --items "$records" --db "$db/$name" --out "$out/$name" >"$out/$name.txt" ||
        echo "$name: points failed, see the report" >&2
    keep "$name"
    find "$db/$name" -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
}

# Puts the tables between the two marks of README.md.
tables() {
    set --
    for name in suite-process suite-reads suite-single suite-buffered suite-sync suite-others large-values memtable \
        sustained-process sustained-buffered beside-reader open-mixed open-sustained scaling memory-pressure transactions \
        lua-mixed-process lua-cart-process lua-scan-process lua-batch-process \
        lua-mixed-buffered lua-cart-buffered lua-batch-buffered \
        ycsb-a ycsb-b ycsb-c ycsb-d ycsb-e ycsb-f; do
        if [ -f "$out/$name/report.json" ]; then
            set -- "$@" "$out/$name/report.json"
        fi
    done
    "$bench" markdown "$@" >"$out/tables.md"
    [ -f "$results/README.md" ] || cp docs/results/README.md "$results/README.md"
    awk -v tables="$out/tables.md" '
        /^<!-- end of the tables -->$/ { skipping = 0 }
        !skipping { print }
        /^<!-- tables, written by run.sh -->$/ {
            skipping = 1
            print ""
            while ((getline line < tables) > 0) print line
        }' "$results/README.md" >"$out/README.md"
    cp "$out/README.md" "$results/README.md"
    # The figures want the engines that the parts name.
    [ -n "${ENGINES:-}" ] || docs/results/figures.sh "$results"
}

case ${1:-all} in
all) measure && tables ;;
tables) tables ;;
*)
    echo "usage: docs/results/run.sh [tables]" >&2
    exit 2
    ;;
esac
