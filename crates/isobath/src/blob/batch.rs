//! Several values at once: in the order in which they lie, and neighbours with one read.

use super::reader::{Fetcher, address_of, end_of, told};
use crate::env::{Reach, reached};
use crate::error::Result;
use crate::format::Address;
use crate::mvcc::Entry;
use crate::table::{BlockFile, PinnedValue};

/// Values that lie no further apart are read together: reading so much more takes less time than
/// another read.
const GAP_MAX: u64 = 4 << 10;
/// The most that is read at once.
const READ_MAX: u64 = 256 << 10;

/// A value that has to be read.
#[derive(Clone, Copy)]
struct Wanted {
    address: Address,
    /// Which of the entries it is of.
    nth: usize,
}

impl Fetcher<'_> {
    /// The values of entries, in the order of the entries. If several cannot be read, the error is
    /// that of the one that lies first.
    pub(crate) fn fetch_all(&self, entries: &[Entry<'_>]) -> Result<Vec<PinnedValue>> {
        let (mut found, mut missing) = (Vec::with_capacity(entries.len()), Vec::new());
        for (nth, entry) in entries.iter().enumerate() {
            if entry.kind.is_streamed() {
                found.push((nth, self.fetch(entry)?));
                continue;
            }
            let address = address_of(self.tables, entry)?;
            match self.ask(&address) {
                Some(value) => found.push((nth, value)),
                None => missing.push(Wanted { address, nth }),
            }
        }
        missing.sort_unstable_by_key(|wanted| (wanted.address.file, wanted.address.offset));
        let mut left = &missing[..];
        while !left.is_empty() {
            let (run, behind) = left.split_at(run_len(left));
            self.read_run(run, entries, &mut found)?;
            left = behind;
        }
        found.sort_unstable_by_key(|(nth, _)| *nth);
        debug_assert_eq!(found.len(), entries.len(), "a value for each entry");
        Ok(found.into_iter().map(|(_, value)| value).collect())
    }

    fn read_run(
        &self,
        run: &[Wanted],
        entries: &[Entry<'_>],
        found: &mut Vec<(usize, PinnedValue)>,
    ) -> Result<()> {
        let Some(first) = run.first() else { return Ok(()) };
        let (start, stored) = (first.address.offset, self.read_together(run));
        let mut last: Option<(Address, PinnedValue)> = None;
        for Wanted { address, nth } in run {
            if let Some((_, value)) = last.as_ref().filter(|(of, _)| of == address) {
                found.push((*nth, value.clone()));
                continue;
            }
            let decoded = stored.as_ref().and_then(|(file, stored)| {
                let at = usize::try_from(address.offset.checked_sub(start)?).ok()?;
                let frame = stored.get(at..at.checked_add(address.stored_len as usize)?)?;
                self.decode(frame, (file.mark(address.offset), address)).ok()
            });
            // A read of its own tells what is wrong, and where.
            let value = match decoded {
                Some(value) => value,
                None => {
                    self.read(address).map_err(|error| told(error, address, entries[*nth].key))?
                }
            };
            found.push((*nth, value.clone()));
            last = Some((*address, value));
        }
        Ok(())
    }

    /// The file of the run, and its bytes from the first value of the run to the end of its last
    /// one. `None` if they are better read one by one, or cannot be read.
    fn read_together(&self, run: &[Wanted]) -> Option<(BlockFile, Vec<u8>)> {
        let [first, .., _] = run else { return None };
        let file = self.tables.files.get_blob(first.address.file).ok()?;
        let (start, end) = (first.address.offset, run_end(run));
        if end > file.len() {
            return None;
        }
        if file.is_mapped() {
            file.read_ahead(start, end - start);
            return None;
        }
        let mut bytes = vec![0; (end - start) as usize];
        self.note_read(&first.address, end - start);
        file.read_at(start, &mut bytes).ok()?;
        reached(Reach::BlobValuesTogether);
        debug_assert!(run.iter().all(|wanted| wanted.address.file == first.address.file));
        Some((file, bytes))
    }
}

fn run_end(run: &[Wanted]) -> u64 {
    run.iter().map(|wanted| end_of(&wanted.address)).max().unwrap_or(0)
}

/// How many of the values, which are in the order of their places, are read together.
fn run_len(wanted: &[Wanted]) -> usize {
    let Some(Wanted { address: first, .. }) = wanted.first() else { return 0 };
    let mut end = end_of(first);
    let more = wanted[1..].iter().take_while(|Wanted { address, .. }| {
        let is_near = address.file == first.file && address.offset <= end.saturating_add(GAP_MAX);
        end = end.max(end_of(address));
        is_near && end - first.offset <= READ_MAX
    });
    1 + more.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(places: &[(u64, u64, u32)]) -> Vec<usize> {
        let wanted = |(nth, &(file, offset, stored_len)): (usize, &(u64, u64, u32))| {
            let address = Address { file, offset, stored_len, value_len: stored_len };
            Wanted { address, nth }
        };
        let all: Vec<_> = places.iter().enumerate().map(wanted).collect();
        let (mut left, mut runs) = (&all[..], Vec::new());
        while !left.is_empty() {
            runs.push(run_len(left));
            left = &left[run_len(left)..];
        }
        runs
    }

    #[test]
    fn values_that_lie_near_each_other_are_one_run() {
        assert_eq!(runs(&[(1, 100, 50), (1, 150, 50), (1, 200 + GAP_MAX, 50)]), [3]);
        assert_eq!(runs(&[(1, 100, 50), (1, 151 + GAP_MAX, 50), (2, 200, 50)]), [1, 1, 1]);
        assert_eq!(runs(&[(1, 100, 50), (1, 100, 50), (2, 150, 50)]), [2, 1], "the same twice");
        let long = READ_MAX as u32 / 2;
        assert_eq!(runs(&[(1, 0, long), (1, READ_MAX / 2, long), (1, READ_MAX, 9)]), [2, 1]);
        assert_eq!(runs(&[(1, 0, u32::MAX), (1, 9, 9)]), [1, 1], "one that is longer is alone");
    }

    #[test]
    fn forged_addresses_end_in_runs_of_their_own() {
        let far = u64::MAX - 5;
        assert_eq!(runs(&[(1, 0, 9), (1, far, 50), (1, far, u32::MAX), (1, u64::MAX, 1)]), [1, 3]);
    }
}
