//! Long statements of an account, each a value that is written as a stream and read as one.
//!
//! A letter is made of words of eight bytes: the teller, the number of the transfer, the letter's
//! own length, words that follow from these, and last a checksum of all before it. So a letter that
//! is read says by itself whether it is whole, and whose it is.

use crate::Trouble;
use crate::random::mix;
use isobath::ValueReader;
use std::io::{self, Read};

/// A letter has more bytes than this, so the engine gives it a file of its own.
pub(crate) const LETTER_LEN_MIN: u64 = 256 << 10;
const WORD_LEN: u64 = 8;
/// The words that say whose letter it is.
const HEADER_WORDS: usize = 3;
/// So many bytes are read at once, not a whole number of words.
const PIECE_LEN: usize = 10_001;

/// A letter as it is written: it makes its bytes while they are read.
pub(crate) struct Letter {
    header: [u64; HEADER_WORDS],
    at: u64,
    word: [u8; WORD_LEN as usize],
    sum: u64,
}

impl Letter {
    pub(crate) fn of(teller: usize, number: u64, len: u64) -> Letter {
        let header = [teller as u64, number, len];
        Letter { header, at: 0, word: [0; WORD_LEN as usize], sum: 0 }
    }

    fn len(&self) -> u64 {
        self.header[HEADER_WORDS - 1]
    }

    fn next_word(&mut self) -> u64 {
        if self.at + WORD_LEN == self.len() {
            return self.sum;
        }
        let nth = self.at / WORD_LEN;
        let [teller, number, _] = self.header;
        let word = match self.header.get(nth as usize) {
            Some(word) => *word,
            None => mix(number << 32 | nth << 8 | teller),
        };
        self.sum = add(self.sum, word);
        word
    }
}

impl Read for Letter {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() && self.at < self.len() {
            let within = (self.at % WORD_LEN) as usize;
            if within == 0 {
                self.word = self.next_word().to_be_bytes();
            }
            let part = &self.word[within..];
            let len = part.len().min(buffer.len() - filled);
            buffer[filled..filled + len].copy_from_slice(&part[..len]);
            filled += len;
            self.at += len as u64;
        }
        Ok(filled)
    }
}

/// A length for a letter.
pub(crate) fn letter_len(draw: u64) -> u64 {
    LETTER_LEN_MIN + (1 + draw % (16 << 10)) * WORD_LEN
}

/// The checksum with a word more.
fn add(sum: u64, word: u64) -> u64 {
    (sum.rotate_left(7) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Reads a letter that the engine returns. An error if it is not whole, or is another's.
pub(crate) fn check(reader: ValueReader, teller: usize, number: u64) -> Result<(), Trouble> {
    let len = reader.len();
    check_bytes(reader, len, teller, number)
}

fn check_bytes(mut from: impl Read, len: u64, teller: usize, number: u64) -> Result<(), Trouble> {
    let wrong = |what: &str| {
        Err(Trouble::wrong(format!("letter {number} of teller {teller}, of {len} bytes: {what}")))
    };
    if len < LETTER_LEN_MIN || !len.is_multiple_of(WORD_LEN) {
        return wrong("no letter is so long");
    }
    let header = [teller as u64, number, len];
    let (mut nth, mut sum, mut last) = (0, 0, 0);
    let (mut piece, mut rest) = (vec![0; PIECE_LEN], Vec::new());
    loop {
        // The reader's error holds an error of the engine.
        let read = from.read(&mut piece).map_err(|error| Trouble::Failed(error.to_string()))?;
        if read == 0 {
            break;
        }
        rest.extend_from_slice(&piece[..read]);
        let (words, odd) = rest.as_chunks::<{ WORD_LEN as usize }>();
        for word in words {
            if nth > 0 {
                sum = add(sum, last);
            }
            last = u64::from_be_bytes(*word);
            if header.get(nth).is_some_and(|expected| *expected != last) {
                return wrong("it is another's");
            }
            nth += 1;
        }
        rest = odd.to_vec();
    }
    match nth as u64 * WORD_LEN == len && rest.is_empty() && last == sum {
        true => Ok(()),
        false => wrong("it is not whole"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_whole_or_its_checksum_says_so() {
        let len = letter_len(77);
        let mut bytes = Vec::new();
        Letter::of(2, 9, len).read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, len);
        let judge = |bytes: &[u8]| check_bytes(bytes, bytes.len() as u64, 2, 9);
        judge(&bytes).unwrap();
        assert!(check_bytes(&bytes[..], len, 1, 9).is_err());
        assert!(check_bytes(&bytes[..], len, 2, 8).is_err());
        assert!(check_bytes(&bytes[..], len + 8, 2, 9).is_err(), "it ends early");
        for at in [0, 8, 23, 24, 4000, bytes.len() - 1] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(judge(&damaged).is_err(), "byte {at}");
        }
        for len in [0, 100, bytes.len() - 8, bytes.len() - 1] {
            assert!(judge(&bytes[..len]).is_err(), "{len} bytes");
        }
    }
}
