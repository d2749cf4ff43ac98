//! How a ceiling is divided: pure arithmetic, so that a test can look at every size.

/// The least ceiling that leaves each class something to work with.
pub(crate) const CEILING_MIN: u64 = 24 << 20;

/// What a job takes, whatever it writes: buffers of files, a block, and what a codec works with.
const WRITER_BYTES: u64 = 1 << 20;
/// What a table under construction holds for each key: a hash, in a vector that is moved when it
/// doubles, bits of a filter, and a part of an entry of the index.
const KEY_BYTES: u64 = 26;
/// A key takes at least three times as much of an epoch.
const WRITER_SHARE: u64 = 3;
/// A long value is in what is staged for a block, in the block, and in what a codec makes of it.
const LONG_COPIES: u64 = 3;
/// What the writer of a spill file takes beside that: the buffers of one table file.
const SPILL_WRITER_BYTES: u64 = 512 << 10;
/// What an index takes while it is built: one part in so many of what is written.
const INDEX_PART: u64 = 32;
/// So many commits of little may be under way at once, and be spoken for by their epoch.
const SMALL_AT_ONCE: u64 = 64;
/// What an operation takes of a memtable, beside its key and value: the headers of its record and
/// its part of the nodes.
const OP_BYTES: u64 = 256;
/// What of an allocation is lost at most, because it does not fit into the end of a slab or of a
/// chunk, or has whole pages of its own: 1/n of its length.
const LOST_PART: u64 = 3;
/// What a part of a compaction reads ahead of values in blob files that are collected, as a
/// multiple of what it reads of an input at once.
pub(crate) const VALUES_AHEAD: u64 = 8;
/// The reserve of a compaction suffices for a part with so many inputs ...
const RESERVED_INPUTS: u64 = 16;
/// ... and tables of half a write buffer with so many bytes on disk for each key.
const RESERVED_ENTRY_LEN: u64 = 40;

/// The parts of a ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    pub(crate) ceiling: u64,
    /// The length of a write buffer.
    pub(crate) write_buffer: u64,
    /// The length of a chunk of memory for memtables.
    pub(crate) chunk_len: u64,
    /// The longest key and value together.
    pub(crate) entry_max: u64,
    /// The bytes that a compaction reads from an input at once.
    pub(crate) read_len: u64,
}

/// The most memory of memtables that a commit takes with keys and values, or a record, of so many
/// bytes.
pub(crate) fn commit_bytes(bytes: u64, ops: u64) -> u64 {
    bytes.saturating_add(bytes / LOST_PART).saturating_add(ops.saturating_mul(OP_BYTES))
}

impl Shares {
    /// The shares of a ceiling, with a write buffer of at most `cap` and at least `least`, and
    /// chunks of at least `chunk_min`.
    pub(crate) fn new(ceiling: u64, cap: u64, least: u64, chunk_min: u64) -> Shares {
        let write_buffer = (ceiling / 12).clamp(least, cap.max(least));
        Shares {
            ceiling,
            write_buffer,
            chunk_len: (write_buffer / 32).clamp(chunk_min, 2 << 20).next_power_of_two(),
            entry_max: ceiling / 64,
            read_len: (ceiling / 1024).clamp(16 << 10, 256 << 10),
        }
    }

    /// What an epoch may come to take: a buffer, an eighth for commits that were admitted before it
    /// was full, and two chunks that are begun.
    pub(crate) fn epoch(&self) -> u64 {
        self.write_buffer + self.rest_of_epoch()
    }

    /// What commits may still take of an epoch that is sealed.
    pub(crate) fn rest_of_epoch(&self) -> u64 {
        self.write_buffer / 8 + 2 * self.chunk_len
    }

    /// The part that memtables always have: for the largest epoch, which is sealed, and the next.
    pub(crate) fn lease(&self) -> u64 {
        2 * self.epoch() + self.rest_of_epoch() + self.commit_max()
    }

    /// The most memory that one commit may take.
    pub(crate) fn commit_max(&self) -> u64 {
        self.ceiling / 16
    }

    /// A commit that may take more than this is spoken for by itself. Of smaller ones, 64 at once
    /// fit into the eighth that an epoch has beside its buffer.
    pub(crate) fn small_commit(&self) -> u64 {
        self.write_buffer / 8 / SMALL_AT_ONCE
    }

    /// What a flush takes beside the memtables that it reads.
    pub(crate) fn flush(&self) -> u64 {
        let epoch = self.epoch() + self.commit_max();
        WRITER_BYTES + epoch / WRITER_SHARE + LONG_COPIES * self.entry_max
    }

    /// What a part of a compaction with so many inputs takes, that writes tables of up to
    /// `table_keys` keys.
    pub(crate) fn part(&self, inputs: u64, table_keys: u64) -> u64 {
        let of_writer = WRITER_BYTES + KEY_BYTES * table_keys + LONG_COPIES * self.entry_max;
        of_writer + VALUES_AHEAD * self.read_len + inputs * self.input()
    }

    /// What an input takes: what is read of it at once, and a block of data and one of the index.
    fn input(&self) -> u64 {
        self.read_len + (32 << 10)
    }

    /// What writing a spill file of about `len` bytes takes without its filter, where the longest
    /// key and value have `longest`, and so many files are merged to it.
    pub(crate) fn spill(&self, inputs: u64, len: u64, longest: u64) -> u64 {
        SPILL_WRITER_BYTES + LONG_COPIES * longest + len / INDEX_PART + inputs * self.input()
    }

    /// What a filter for so many keys takes while it is made. Of very many keys it takes less for
    /// each (`table/filter.rs`).
    pub(crate) fn filter(keys: u64) -> u64 {
        const COLLECTED_MAX: u64 = 1 << 20;
        keys.min(COLLECTED_MAX) * KEY_BYTES + keys.saturating_sub(COLLECTED_MAX) * 3
    }

    /// For how many keys a table of such a part has memory, if the part has so many bytes.
    pub(crate) fn keys_within(&self, bytes: u64, inputs: u64) -> u64 {
        bytes.saturating_sub(self.part(inputs, 0)) / KEY_BYTES
    }

    /// For how many inputs of such a part there is memory, if a table gets so many keys.
    pub(crate) fn inputs_within(&self, bytes: u64, table_keys: u64) -> u64 {
        bytes.saturating_sub(self.part(0, table_keys)) / self.input()
    }

    /// What is kept for one part of a compaction.
    pub(crate) fn reserved_part(&self) -> u64 {
        self.part(RESERVED_INPUTS, self.write_buffer / 2 / RESERVED_ENTRY_LEN)
    }

    /// What is kept for blocks; the block cache is pressed to that, and not further.
    pub(crate) fn blocks_min(&self) -> u64 {
        self.ceiling / 16
    }

    /// The most that frames of the block cache take, which are never given back: half of what is
    /// kept for blocks.
    pub(crate) fn frames_max(&self) -> u64 {
        self.blocks_min() / 2
    }

    /// What is kept for open tables that do not stay open.
    pub(crate) fn passing_tables(&self) -> u64 {
        self.ceiling / 32
    }

    /// What is kept for what jobs read, beside the memory of a flush and of a part: open tables
    /// that do not stay open, and blocks that are long.
    pub(crate) fn read_by_jobs(&self) -> u64 {
        self.ceiling / 32 + self.entry_max
    }

    /// All that is kept from the open on.
    pub(crate) fn reserved(&self) -> u64 {
        let of_jobs = self.flush() + self.reserved_part() + self.read_by_jobs();
        self.lease() + of_jobs + self.passing_tables() + self.blocks_min()
    }

    /// The length of a block of an index: about that of the top of the index, in a table of half a
    /// write buffer.
    pub(crate) fn index_block_len(&self) -> u32 {
        (self.write_buffer >> 14).clamp(1 << 10, 4 << 10) as u32
    }

    /// The most that the block cache may grow to.
    pub(crate) fn cache_most(&self) -> u64 {
        self.ceiling - (self.reserved() - self.blocks_min()) - self.headroom()
    }

    /// The most that tables that stay open may take together.
    pub(crate) fn staying_tables(&self) -> u64 {
        self.ceiling / 16 * 3
    }

    /// What is left for blocks in flight, so that one that is read does not press the cache.
    pub(crate) fn headroom(&self) -> u64 {
        self.ceiling / 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_leaves_a_quarter_for_everything_else() {
        for shift in 0..20 {
            for ceiling in [CEILING_MIN << shift, (CEILING_MIN << shift) + 12_345_678] {
                let shares = Shares::new(ceiling, u64::MAX, 64 << 10, 16 << 10);
                let reserved = shares.reserved();
                assert!(reserved <= ceiling / 4 * 3, "{reserved} of {shares:?}");
                assert!(shares.cache_most() >= shares.blocks_min(), "{shares:?}");
                assert!(3 * shares.write_buffer < shares.lease());
                assert!(
                    shares.chunk_len <= shares.write_buffer / 16 && shares.chunk_len <= 2 << 20
                );
            }
        }
    }

    #[test]
    fn what_writes_tables_has_memory_for_the_longest_entry_three_times() {
        let shares = Shares::new(24 << 20, u64::MAX, 64 << 10, 16 << 10);
        let without = Shares { entry_max: 0, ..shares };
        assert_eq!(shares.flush() - without.flush(), 3 * shares.entry_max);
        assert_eq!(shares.part(4, 100) - without.part(4, 100), 3 * shares.entry_max);
    }

    #[test]
    fn a_part_has_memory_for_as_many_keys_as_it_is_asked_for() {
        let shares = Shares::new(24 << 20, u64::MAX, 64 << 10, 16 << 10);
        for (inputs, keys) in [(1, 1), (16, 26_214), (40, 1024), (3, 1 << 30)] {
            assert_eq!(shares.keys_within(shares.part(inputs, keys), inputs), keys);
        }
        assert_eq!(shares.keys_within(shares.reserved_part(), 1000), 0);
        for (inputs, keys) in [(2, 1), (16, 26_214), (40, 1024)] {
            assert_eq!(shares.inputs_within(shares.part(inputs, keys), keys), inputs);
            assert_eq!(shares.inputs_within(shares.part(inputs, keys) - 1, keys), inputs - 1);
        }
        assert_eq!(shares.inputs_within(shares.reserved_part(), 1 << 30), 0);
    }

    #[test]
    fn a_write_buffer_is_a_twelfth_or_less_if_the_options_say_so() {
        let buffer = |cap| Shares::new(256 << 20, cap, 64 << 10, 16 << 10).write_buffer;
        assert_eq!((buffer(u64::MAX), buffer(4 << 20)), ((256 << 20) / 12, 4 << 20));
        assert_eq!(buffer(1), 64 << 10);
    }
}
