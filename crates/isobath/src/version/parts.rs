//! Edits that are too long for one record: each of several records has a part of such an edit.
//!
//! ```text
//! payload of a part     0   1  tag 27, which no change has
//!                       1   *  length of the next two fields, varint
//!                       *   *  which part it is, from 0 on, varint
//!                       *   1  1 if it is the last part, otherwise 0
//!                       *   *  change *
//! ```
//!
//! The parts lie behind each other. The edit consists of the changes of all of them, and takes
//! effect with its last part: parts without it are the torn tail of a write whose success was never
//! reported. Each part is synced before the next one is written, so that a valid record shows that
//! those before it had been whole, as for any other record. Only an edit that no record takes as a
//! whole is written so. A version that does not know parts refuses such a manifest as too new.

use super::edit::Edit;
use crate::error::{DecodeError, Decoded};
use crate::format::{Decoder, put_bytes, put_varint};

const TAG: u8 = 27;

/// What the fields before the changes of a part take at most.
const FIELDS_LEN_MAX: usize = 16;

/// The payloads of the records that hold an edit: one, unless it is longer than `len_max`. A single
/// change is never divided, so that one that is too long makes a payload that is too long.
pub(super) fn payloads(edit: &Edit, len_max: usize) -> Vec<Vec<u8>> {
    let part_len_max = len_max.saturating_sub(FIELDS_LEN_MAX);
    let mut pieces = vec![Vec::new()];
    let (mut encoded, mut body) = (Vec::new(), Vec::new());
    for change in &edit.changes {
        encoded.clear();
        change.encode(&mut encoded, &mut body);
        let piece = pieces.last_mut().expect("there is one from the start");
        match !piece.is_empty() && piece.len() + encoded.len() > part_len_max {
            true => pieces.push(encoded.clone()),
            false => piece.extend_from_slice(&encoded),
        }
    }
    if pieces.len() == 1 {
        return pieces;
    }
    if pieces.iter().map(Vec::len).sum::<usize>() <= len_max {
        return vec![pieces.concat()];
    }
    let last = pieces.len() - 1;
    let parts = pieces.into_iter().enumerate();
    parts.map(|(nth, changes)| payload_of(nth as u64, nth == last, &changes)).collect()
}

fn payload_of(nth: u64, is_last: bool, changes: &[u8]) -> Vec<u8> {
    let mut fields = Vec::new();
    put_varint(&mut fields, nth);
    fields.push(u8::from(is_last));
    let mut payload = Vec::with_capacity(FIELDS_LEN_MAX + changes.len());
    payload.push(TAG);
    put_bytes(&mut payload, &fields);
    debug_assert!(payload.len() <= FIELDS_LEN_MAX, "a part is longer than it was planned");
    payload.extend_from_slice(changes);
    payload
}

/// The fields of a part and the bytes of its changes; `None` if the payload is a whole edit.
fn part_of(payload: &[u8]) -> Decoded<Option<(u64, bool, &[u8])>> {
    if payload.first() != Some(&TAG) {
        return Ok(None);
    }
    let mut decoder = Decoder::new(&payload[1..]);
    let fields = decoder.bytes().map_err(|error| error.behind(1))?;
    let changes = &payload[payload.len() - decoder.remaining()..];
    let fields_at = payload.len() - changes.len() - fields.len();
    let (nth, is_last) = fields_of(fields).map_err(|error| error.behind(fields_at))?;
    Ok(Some((nth, is_last, changes)))
}

fn fields_of(bytes: &[u8]) -> Decoded<(u64, bool)> {
    let mut fields = Decoder::new(bytes);
    let nth = fields.varint()?;
    let is_last = match fields.u8()? {
        0 => false,
        1 => true,
        _ => return Err(fields.malformed("a part of an edit is neither the last nor another")),
    };
    if !fields.is_done() {
        return Err(fields.malformed("a part of an edit has fields that mean nothing"));
    }
    Ok((nth, is_last))
}

/// Makes edits of the payloads of consecutive records.
#[derive(Debug, Default)]
pub(super) struct Joiner {
    begun: Option<Begun>,
}

/// The parts so far of an edit whose last part is still to come.
#[derive(Debug)]
struct Begun {
    /// Where the record of the first part lies.
    offset: u64,
    parts: u64,
    edit: Edit,
}

impl Joiner {
    /// Takes the payload of the record at `offset`. Returns an edit once it is whole, with the
    /// offset of its first record. After an error nothing is begun.
    pub(super) fn take(&mut self, offset: u64, payload: &[u8]) -> Decoded<Option<(u64, Edit)>> {
        let begun = self.begun.take();
        let Some((nth, is_last, changes)) = part_of(payload)? else {
            return match begun {
                Some(_) => Err(DecodeError::damaged("the last part of the edit before is missing")),
                None => Ok(Some((offset, Edit::decode(payload)?))),
            };
        };
        let begun = match begun {
            None if nth == 0 => Begun { offset, parts: 0, edit: Edit::default() },
            Some(begun) if nth == begun.parts => begun,
            _ => {
                return Err(DecodeError::damaged(
                    "a part of an edit does not follow the one before",
                ));
            }
        };
        let Begun { offset, parts, mut edit } = begun;
        let changes_at = payload.len() - changes.len();
        let decoded = Edit::decode(changes).map_err(|error| error.behind(changes_at))?;
        edit.changes.extend(decoded.changes);
        if is_last {
            return Ok(Some((offset, edit)));
        }
        self.begun = Some(Begun { offset, parts: parts + 1, edit });
        Ok(None)
    }

    /// Where the edit begins whose last part is still to come, if there is one.
    pub(super) fn begun_at(&self) -> Option<u64> {
        self.begun.as_ref().map(|begun| begun.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::super::edit::Change;
    use super::super::fixtures::first_edit;
    use super::*;

    fn joined(payloads: &[Vec<u8>]) -> Decoded<Vec<(u64, Edit)>> {
        let mut joiner = Joiner::default();
        let mut edits = Vec::new();
        for (payload, offset) in payloads.iter().zip(0..) {
            edits.extend(joiner.take(offset, payload)?);
        }
        Ok(edits)
    }

    #[test]
    fn golden_bytes_hold() {
        let edit = Edit::new(vec![Change::NextFile { number: 1 }, Change::NextFile { number: 2 }]);
        assert_eq!(payloads(&edit, 5), [[27, 2, 0, 0, 10, 1, 1], [27, 2, 1, 1, 10, 1, 2]]);
    }

    #[test]
    fn an_edit_is_divided_only_if_no_record_takes_it_and_comes_back_whole() {
        let edit = first_edit();
        let whole = edit.encode();
        for len_max in 0..whole.len() + 2 {
            let payloads = payloads(&edit, len_max);
            assert_eq!(payloads.len() == 1, len_max >= whole.len(), "{len_max}");
            if payloads.len() == 1 {
                assert_eq!(payloads[0], whole);
            }
            let longest =
                edit.changes.iter().map(|one| Edit::new(vec![one.clone()]).encode().len());
            let limit = len_max.max(longest.max().unwrap() + FIELDS_LEN_MAX);
            assert!(payloads.iter().all(|payload| payload.len() <= limit));
            assert_eq!(joined(&payloads).unwrap(), [(0, edit.clone())]);
            assert!(joined(&payloads[..payloads.len() - 1]).unwrap().is_empty());
        }
        let one = Edit::new(vec![Change::NextFile { number: 1 }]);
        assert_eq!(payloads(&one, 1), [one.encode()], "a change is never divided");
    }

    #[test]
    fn parts_that_do_not_follow_each_other_are_damage() {
        let [first, second, third] = &payloads(&first_edit(), 34)[..] else { panic!("not three") };
        let plain = Edit::new(vec![Change::NextFile { number: 1 }]).encode();
        for wrong in [
            vec![second],
            vec![first, first],
            vec![first, third],
            vec![first, &plain],
            vec![first, second, third, third],
        ] {
            let wrong: Vec<_> = wrong.into_iter().cloned().collect();
            assert!(joined(&wrong).unwrap_err().is_damage());
        }
        for (at, byte) in [(1, 1), (1, 3), (3, 2)] {
            let mut wrong = first.clone();
            wrong[at] = byte;
            assert!(joined(&[wrong]).is_err(), "{at}");
        }
        let good = [first, second, third, &plain].map(Vec::clone);
        assert_eq!(joined(&good).unwrap().len(), 2);
    }
}
