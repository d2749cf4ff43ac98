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

    /// A commit that may take more than this is spoken for by itself.
    pub(crate) fn small_commit(&self) -> u64 {
        self.write_buffer / 64
    }

    /// What a flush takes beside the memtables that it reads.
    pub(crate) fn flush(&self) -> u64 {
        let epoch = self.epoch() + self.commit_max();
        WRITER_BYTES + epoch / WRITER_SHARE + LONG_COPIES * self.entry_max
    }

    /// What a part of a compaction with so many inputs takes, that writes tables of up to
    /// `table_keys` keys.
    pub(crate) fn part(&self, inputs: u64, table_keys: u64) -> u64 {
        // An input holds what it reads at once, and a block of data and one of the index.
        let of_writer = WRITER_BYTES + KEY_BYTES * table_keys + LONG_COPIES * self.entry_max;
        of_writer + inputs * (self.read_len + (32 << 10))
    }

    /// What is kept for one part of a compaction.
    pub(crate) fn reserved_part(&self) -> u64 {
        self.part(RESERVED_INPUTS, self.write_buffer / 2 / RESERVED_ENTRY_LEN)
    }

    /// What is kept for blocks; the block cache is pressed to that, and not further.
    pub(crate) fn blocks_min(&self) -> u64 {
        self.ceiling / 16
    }

    /// What is kept for tops of open tables.
    pub(crate) fn tables_min(&self) -> u64 {
        self.ceiling / 16
    }

    /// The most that the block cache may grow to.
    pub(crate) fn cache_most(&self) -> u64 {
        let reserved = self.lease() + self.flush() + self.reserved_part() + self.tables_min();
        self.ceiling - reserved - self.headroom()
    }

    /// The most that filters and tops of open tables may take together.
    pub(crate) fn tables_max(&self) -> u64 {
        self.ceiling / 4
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
                let of_jobs = shares.flush() + shares.reserved_part();
                let kept = shares.blocks_min() + shares.tables_min();
                let reserved = shares.lease() + of_jobs + kept;
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
    fn a_write_buffer_is_a_twelfth_or_less_if_the_options_say_so() {
        let buffer = |cap| Shares::new(256 << 20, cap, 64 << 10, 16 << 10).write_buffer;
        assert_eq!((buffer(u64::MAX), buffer(4 << 20)), ((256 << 20) / 12, 4 << 20));
        assert_eq!(buffer(1), 64 << 10);
    }
}
