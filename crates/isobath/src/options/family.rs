//! Options of one column family.

use super::expiry::{TTL_MS_MAX, whole_ms};
use super::list::options;
use super::names::check_name;
use super::size::KIB;
use super::stored::Carried;
#[cfg(feature = "serde")]
use super::text;
use super::within;
use crate::error::{Decoded, Error, Result};
use crate::format::{DEFAULT_FAMILY, FamilyId};
use crate::table::{Codec, Label, Origin, TableOptions};
use std::time::Duration;

options! {
/// Options of one column family. They are stored with the family.
#[derive(Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct FamilyOptions {
    /// The codec of each level, level 0 first. The last codec also applies to all deeper levels,
    /// and always to the last level of a tree. Default: none for level 0, which is soon rewritten,
    /// and LZ4 below (none in a build without the feature `lz4`).
    pub codecs: Vec<Codec> = vec![Codec::None, Codec::default()],
    /// Uncompressed bytes of a data block. Default 4 KiB. Larger blocks compress better and scan
    /// faster; smaller blocks make a point read of uncached data cheaper.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "text::size"))]
    pub block_size: u64 = 4 * KIB,
    /// Bloom filter bits per key. Default 10 (about 1% false positives). With more bits, fewer gets
    /// of absent keys reach a block; with fewer, filters take less memory. 0 turns filters off.
    pub filter_bits_per_key: u32 = 10,
    /// How many times larger a level may be than the level above. Default 10, at least 2, at most
    /// 100. A smaller limit gives more levels: compactions rewrite fewer bytes, and reads search
    /// more levels.
    #[cfg_attr(feature = "serde", serde(alias = "level_ratio"))]
    pub level_size_ratio: u32 = 10,
}
with {
    /// The name of the family's merge operator, for `merge`. Default: none. It is set once: an
    /// operator that a family has stays, and options without one leave it as it is.
    pub merge_operator: Option<String> = None,
    /// How long values live, for puts that do not say. Default: for ever. Puts to come take a new
    /// one; what is there keeps its end.
    pub ttl: Option<Duration> = None,
    /// The name of the filter that compactions ask about values. Default: none, and all stay.
    pub compaction_filter: Option<String> = None,
    /// Values of at least this many bytes are written to blob files when they are flushed, apart
    /// from their keys, and compactions do not write them again. Default: none are. With 2 KiB and
    /// more it saves the disk most of the writes of compactions. A get pays for it with one more
    /// read, unless the value is cached. A scan of values reads those ahead that lie behind, and
    /// pays with a read for each where its neighbours were not flushed or moved together. It may be
    /// changed at any time: what is there stays readable, and compactions move what they meet.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "text::optional_size"))]
    pub separate_from: Option<u64> = None,
    /// For how long a deleted value may stay in tables, at least a minute. Default: there is no
    /// bound, and deletes go down when there is time or reason. With one they go down early
    /// enough, also while much is written as long as compactions keep up with it, for the price of
    /// more compactions: the shorter, the more. It counts from the delete, of a key or of a range,
    /// to the moment at which the value is in no table that the family uses. A value that a
    /// snapshot or the history still needs stays until compactions have met it after that. It does
    /// not count for values in blob files, which go with the file, nor for what clones and the log
    /// hold, or for room on the device that was freed and not written again.
    pub delete_within: Option<Duration> = None,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) carried: Carried = Carried::default(),
}
}

impl FamilyOptions {
    /// One codec for every level.
    pub fn codec(mut self, codec: Codec) -> Self {
        self.codecs = vec![codec];
        self
    }

    /// Sets [`FamilyOptions::merge_operator`]: the name of a bundled operator
    /// ([`operators`](crate::operators)), or of one that
    /// [`Options::merge_operator`](crate::Options::merge_operator) has brought.
    pub fn merge_operator(mut self, name: impl Into<String>) -> Self {
        self.merge_operator = Some(name.into());
        self
    }

    /// Sets [`FamilyOptions::ttl`]: `None` for values that do not end.
    pub fn ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.ttl = ttl.into();
        self
    }

    /// Sets [`FamilyOptions::compaction_filter`]: the name of one that
    /// [`Options::compaction_filter`](crate::Options::compaction_filter) has brought. `None` for
    /// none.
    pub fn compaction_filter<'a>(mut self, name: impl Into<Option<&'a str>>) -> Self {
        self.compaction_filter = name.into().map(str::to_owned);
        self
    }

    /// Sets [`FamilyOptions::separate_from`]: `None` to keep values with their keys.
    pub fn separate_from(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.separate_from = bytes.into();
        self
    }

    /// Sets [`FamilyOptions::delete_within`]: `None` for no bound.
    pub fn delete_within(mut self, bound: impl Into<Option<Duration>>) -> Self {
        self.delete_within = bound.into();
        self
    }

    /// For how long deleted values may stay, in milliseconds; 0 if there is no bound.
    pub(crate) fn delete_within_ms(&self) -> u64 {
        self.delete_within.map_or(0, whole_ms)
    }

    /// The time to live of values that do not say, in milliseconds; 0 for ever.
    pub(crate) fn ttl_ms(&self) -> u64 {
        self.ttl.map_or(0, whole_ms)
    }

    /// The options of a table slice that states none. They are the same in every build.
    pub(crate) fn unlabelled() -> Self {
        FamilyOptions { codecs: vec![Codec::None, Codec::Lz4], ..FamilyOptions::default() }
    }

    /// The options, or an error if they name a codec that this build lacks.
    pub(crate) fn demand_codecs(self) -> Decoded<Self> {
        self.codecs.iter().try_for_each(|codec| codec.demand())?;
        Ok(self)
    }

    pub(crate) fn codec_at(&self, level: usize) -> Codec {
        self.codecs.get(level).or(self.codecs.last()).copied().unwrap_or(Codec::None)
    }

    /// How to write slices of a level, in the family with this id and name.
    pub(crate) fn table_options(&self, id: FamilyId, name: &str, level: usize) -> TableOptions {
        let options =
            if *self == FamilyOptions::unlabelled() { Vec::new() } else { self.to_stored() };
        let needs_label = id != DEFAULT_FAMILY || !options.is_empty();
        let label = needs_label.then(|| Label { name: name.to_owned(), options }.into());
        TableOptions {
            origin: Origin { label, ..Origin::default() },
            block_len: self.block_size as u32,
            codec: self.codec_at(level),
            filter_bits_per_key: self.filter_bits_per_key,
            separate_from: self.separate_from.map_or(u32::MAX, |bytes| bytes as u32),
            blob_codec: self.codec_at(usize::MAX),
            ..TableOptions::default()
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        within("block_size", self.block_size, 256, 1 << 20)?;
        within("filter_bits_per_key", u64::from(self.filter_bits_per_key), 0, 64)?;
        within("level_size_ratio", u64::from(self.level_size_ratio), 2, 100)?;
        within("codecs (entries)", self.codecs.len() as u64, 1, 16)?;
        if let Some(bytes) = self.separate_from {
            within("separate_from", bytes, 1, u64::from(u32::MAX) - 1)?;
        }
        if let Some(ttl) = self.ttl
            && (ttl.is_zero() || whole_ms(ttl) > TTL_MS_MAX)
        {
            return Err(Error::invalid_argument(format!(
                "ttl: {ttl:?} is no time to live; it is above zero and at most {TTL_MS_MAX} milliseconds"
            )));
        }
        if let Some(bound) = self.delete_within {
            within("delete_within (milliseconds)", whole_ms(bound), 60_000, TTL_MS_MAX)?;
        }
        let (operator, filter) = (&self.merge_operator, &self.compaction_filter);
        let named = [("merge_operator", operator), ("compaction_filter", filter)];
        let mut named = named.iter().filter_map(|(option, name)| Some((option, name.as_ref()?)));
        named.try_for_each(|(option, name)| check_name(option, name))
    }

    /// Checks options that a program passes. Their codecs must exist in this build.
    pub(crate) fn check_asked(&self) -> Result<()> {
        self.check()?;
        match self.codecs.iter().find(|codec| !codec.is_available()) {
            Some(codec) => Err(Error::invalid_argument(format!(
                "codecs: this build lacks {0}; build Isobath with the feature `{0}`",
                codec.name()
            ))),
            None => Ok(()),
        }
    }
}
