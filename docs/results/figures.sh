#!/bin/sh
# Draws the figures of docs/results from the .csv files beside it: a bar for each engine and row, of
# the median over the repeats, with a thin line from the least repeat to the greatest. The same
# files give the same figures, byte by byte. run.sh calls it.
#
#   docs/results/figures.sh [DIR]    # DIR: where the .csv files are, in place of docs/results
set -eu
cd "${1:-$(dirname "$0")}"

# figure NAME TITLE CSV ENGINES ROWS: ROWS are test=label, separated by semicolons. Where a row has
# several kinds of operation, their rates add up.
figure() {
    awk -F, -v title="$2" -v engines="$4" -v rows="$5" '
        function fill(name) {
            return name == "isobath" ? "#0b6e99" : name == "rocksdb" ? "#d98c3f" : name == "tidesdb" ? "#8a6fb0" : \
                name == "lmdb" ? "#5f9e5f" : "#b0616b"
        }
        function shown(rate) {
            return rate >= 999500 ? sprintf("%.2f M", rate / 1e6) : rate >= 1000 ? sprintf("%.0f k", rate / 1e3) : sprintf("%.0f", rate)
        }
        function text(x, y, anchor, size, what) {
            printf "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\" font-size=\"%d\">%s</text>\n", x, y, anchor, size, what
        }
        NR == 1 { for (at = 1; at <= NF; at++) column[$at] = at; next }
        {
            key = $column["engine"] SUBSEP $column["test_name"]
            rate[key, $column["repeat"]] += $column["ops_per_sec"]
            if ($column["repeat"] + 1 > repeats[key]) repeats[key] = $column["repeat"] + 1
        }
        END {
            engine_count = split(engines, engine, " ")
            row_count = split(rows, row, ";")
            left = 210; wide = 500; bar = 13; gap = 12; top = 62
            for (r = 1; r <= row_count; r++) {
                split(row[r], parts, "=")
                label[r] = parts[2]
                for (e = 1; e <= engine_count; e++) {
                    key = engine[e] SUBSEP parts[1]
                    count = repeats[key]
                    if (count == 0) { print "no row " parts[1] " of " engine[e] > "/dev/stderr"; exit 1 }
                    for (i = 0; i < count; i++) {
                        sorted[i] = rate[key, i]
                        for (j = i; j > 0 && sorted[j - 1] > sorted[j]; j--) {
                            swap = sorted[j]; sorted[j] = sorted[j - 1]; sorted[j - 1] = swap
                        }
                    }
                    low[r, e] = sorted[0]; high[r, e] = sorted[count - 1]
                    median[r, e] = count % 2 ? sorted[(count - 1) / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2
                    if (high[r, e] > most) most = high[r, e]
                }
            }
            height = top + row_count * (engine_count * bar + gap) + 20
            printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 %d\" font-family=\"sans-serif\" fill=\"#222\">\n", height
            printf "<title>%s</title>\n<rect width=\"800\" height=\"%d\" fill=\"#fff\"/>\n", title, height
            text(12, 22, "start", 15, title)
            x = left
            for (e = 1; e <= engine_count; e++) {
                printf "<rect x=\"%d\" y=\"36\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, fill(engine[e])
                text(x + 17, 47, "start", 13, engine[e])
                x += 45 + 8 * length(engine[e])
            }
            step = exp(log(10) * int(log(most / 5) / log(10)))
            while (most / step > 6) step *= most / step > 12 ? 5 : 2
            for (tick = step; tick <= most; tick += step) {
                at = left + tick / most * wide
                printf "<path d=\"M%d %dV%d\" stroke=\"#ddd\"/>\n", at, top - 6, height - 18
                text(at, height - 6, "middle", 11, shown(tick))
            }
            for (r = 1; r <= row_count; r++) {
                y = top + (r - 1) * (engine_count * bar + gap)
                text(left - 8, y + engine_count * bar / 2 + 4, "end", 12, label[r])
                for (e = 1; e <= engine_count; e++) {
                    from = left + low[r, e] / most * wide; to = left + high[r, e] / most * wide
                    at = y + (e - 1) * bar
                    printf "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n", \
                        left, at, median[r, e] / most * wide, bar - 2, fill(engine[e])
                    if (to > from) printf "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#222\"/>\n", from, at + (bar - 2) / 2, to
                    text((to > from ? to : from) + 5, at + 10, "start", 11, shown(median[r, e]))
                }
            }
            print "</svg>"
        }' "$3" >"$1.svg"
}

figure writes "Writes that survive a killed process, keys a second, 2 threads" suite-process.csv "isobath rocksdb" \
    "write_seq_b1=ascending keys;write_random_b1=random keys;write_zipfian_b1=Zipfian keys;\
write_random_b10=random, batches of 10;write_random_b100=random, batches of 100;write_seq_b100=ascending, batches of 100;\
write_random_b100_v1024=batches of 100, 1 KiB;write_random_b1_v4096=random keys, 4 KiB;delete_random_b1=deletes of random keys"
figure reads "Reads, seeks and ranges a second, 2 threads" suite-reads.csv "isobath rocksdb tidesdb" \
    "read_random=random keys;read_zipfian=Zipfian keys;read_random_cached=random keys, large cache;absent_random=absent keys;\
seek_random=seeks to random keys"
figure others "Beside LMDB and fjall, operations a second, 2 threads" suite-others.csv "isobath lmdb fjall" \
    "write_seq_b1=writes, ascending keys;write_random_b1=writes, random keys;write_random_b100=writes, batches of 100;\
mixed_uniform=puts and gets mixed;read_random=reads of random keys;seek_random=seeks to random keys"
