//! The stored form of a family's options, in the log, in the manifest and in tables: one JSON
//! object.
//!
//! ```text
//! {"codecs":["none","lz4"],"block_size":4096,"filter_bits_per_key":10,"level_size_ratio":10}
//! ```
//!
//! A missing key means the default. A later version can add two kinds of keys. The name tells the
//! kind:
//!
//! - A name that begins with `!` changes what the data means. A version that does not know the key
//!   cannot read the family: [`DecodeError::newer_format`].
//! - Any other name affects only what is written next. A version that does not know the key ignores
//!   it and carries it ([`Carried`]): when it replaces these options, it writes the key and its
//!   value unchanged.
//!
//! Versions before this rule refuse every key that they do not know.

use super::family::FamilyOptions;
use super::size;
use crate::error::{self, DecodeError, Decoded, Error};
use crate::format::FamilyId;
use crate::table::Codec;
use std::fmt::Write;
use std::time::Duration;

/// What only labels of tables have. No one else asks for it, so it is carried.
const CLONE_OF: &str = "\"clone_of\"";

/// The maximum nesting depth of lists and objects of a later version.
const DEPTH_MAX: usize = 16;

/// Options that only a later version knows: their names and values, unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Carried(Vec<(String, String)>);

impl FamilyOptions {
    /// The options in stored form.
    pub(crate) fn to_stored(&self) -> Vec<u8> {
        let FamilyOptions { codecs, block_size, filter_bits_per_key, level_size_ratio, .. } = self;
        let codecs: Vec<_> = codecs.iter().map(|codec| format!("{:?}", codec.name())).collect();
        let mut out = format!(
            r#"{{"codecs":[{}],"block_size":{block_size},"filter_bits_per_key":{filter_bits_per_key},"level_size_ratio":{level_size_ratio}"#,
            codecs.join(",")
        );
        if let Some(name) = &self.merge_operator {
            write!(out, r#","!merge_operator":"{name}""#).expect("a string takes all");
        }
        if self.ttl.is_some() {
            write!(out, r#","!ttl_ms":{}"#, self.ttl_ms()).expect("a string takes all");
        }
        if let Some(name) = &self.compaction_filter {
            write!(out, r#","compaction_filter":"{name}""#).expect("a string takes all");
        }
        if let Some(bytes) = self.separate_from {
            write!(out, r#","separate_from":{bytes}"#).expect("a string takes all");
        }
        if self.delete_within.is_some() {
            let bound_ms = self.delete_within_ms();
            write!(out, r#","delete_within_ms":{bound_ms}"#).expect("a string takes all");
        }
        for (name, value) in &self.carried.0 {
            write!(out, ",{name}:{value}").expect("a string takes all");
        }
        out.push('}');
        out.into_bytes()
    }

    /// Reads stored options. Checksums hold, so these bytes are what was written; any fault in them
    /// comes from a later version.
    pub(crate) fn from_stored(stored: &[u8]) -> Decoded<FamilyOptions> {
        let unreadable = |why: String| {
            DecodeError::newer_format(format!(
                "the options of a column family cannot be read: {why}"
            ))
        };
        let text = str::from_utf8(stored).map_err(|why| unreadable(why.to_string()))?;
        let options = read(text).map_err(unreadable)?;
        // Invalid sizes come from a later version: no call could have stored them.
        options.check().map_err(|why| unreadable(why.to_string()))?;
        Ok(options)
    }

    /// These options as the label of a clone's tables has them: with the family that the first of
    /// its ancestors is. Only a repair without a manifest reads that.
    pub(crate) fn of_clone(&self, root: FamilyId) -> FamilyOptions {
        let mut options = self.clone();
        options.carried.0.retain(|(name, _)| name != CLONE_OF);
        options.carried.0.push((CLONE_OF.to_owned(), root.to_string()));
        options
    }

    /// The family of which the label of a table says that its own is a clone.
    pub(crate) fn is_clone_of(&self) -> Option<FamilyId> {
        let (_, root) = self.carried.0.iter().find(|(name, _)| name == CLONE_OF)?;
        root.parse().ok()
    }

    /// Carries over what options that replace `former` keep: the merge operator, and the keys that
    /// only a later version knows. An error if these options name another operator.
    pub(crate) fn take_over(&mut self, former: &FamilyOptions) -> error::Result<()> {
        match (&self.merge_operator, &former.merge_operator) {
            (Some(wanted), Some(is)) if wanted != is => {
                return Err(Error::invalid_argument(format!(
                    "merge_operator: the column family has {is:?} for good, and cannot have {wanted:?}"
                )));
            }
            (None, Some(is)) => self.merge_operator = Some(is.clone()),
            _ => {}
        }
        for (name, value) in &former.carried.0 {
            if self.carried.0.iter().all(|(known, _)| known != name) {
                self.carried.0.push((name.clone(), value.clone()));
            }
        }
        Ok(())
    }
}

fn read(text: &str) -> Result<FamilyOptions, String> {
    let mut options = FamilyOptions::default();
    let mut seen: Vec<&str> = Vec::new();
    let mut json = Json { text, at: 0 };
    json.members(|json, name| {
        // Names in stored form, with quotes. A name written with an escape counts as a different
        // name.
        let key = match name {
            "\"level_ratio\"" => "\"level_size_ratio\"",
            name => name,
        };
        if seen.contains(&key) {
            return Err(format!("{name} is there twice"));
        }
        seen.push(key);
        match key {
            "\"codecs\"" => options.codecs = codecs(json)?,
            "\"block_size\"" => options.block_size = bytes(json)?,
            "\"filter_bits_per_key\"" => options.filter_bits_per_key = number(json)?,
            "\"!ttl_ms\"" => options.ttl = Some(Duration::from_millis(bytes(json)?)),
            "\"!merge_operator\"" => options.merge_operator = Some(plain(json)?),
            "\"compaction_filter\"" => options.compaction_filter = Some(plain(json)?),
            "\"delete_within_ms\"" => {
                options.delete_within = Some(Duration::from_millis(bytes(json)?));
            }
            "\"separate_from\"" => options.separate_from = Some(bytes(json)?),
            "\"level_size_ratio\"" => options.level_size_ratio = number(json)?,
            _ if key.starts_with("\"!") => return Err(format!("{name} is not known here")),
            _ => {
                let value = json.value(DEPTH_MAX)?;
                options.carried.0.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(())
    })?;
    json.end()?;
    Ok(options)
}

fn codecs(json: &mut Json<'_>) -> Result<Vec<Codec>, String> {
    let mut codecs = Vec::new();
    json.elements(|json| {
        let name = json.string()?;
        let known = Codec::ALL.into_iter().find(|codec| name[1..name.len() - 1] == *codec.name());
        codecs.push(known.ok_or_else(|| format!("codec {name} is not known here"))?);
        Ok(())
    })?;
    Ok(codecs)
}

/// A string without escapes.
fn plain(json: &mut Json<'_>) -> Result<String, String> {
    let quoted = json.string()?;
    match quoted.contains('\\') {
        true => Err(format!("{quoted} has an escape")),
        false => Ok(quoted[1..quoted.len() - 1].to_owned()),
    }
}

/// A size: a number, or text as the first versions wrote it.
fn bytes(json: &mut Json<'_>) -> Result<u64, String> {
    if json.peek() != Some(b'"') {
        return number(json);
    }
    let text = json.string()?;
    size::parse(&text[1..text.len() - 1]).ok_or_else(|| format!("{text} is no size"))
}

fn number<T: std::str::FromStr>(json: &mut Json<'_>) -> Result<T, String> {
    let text = json.value(0)?;
    text.parse().map_err(|_| format!("{text} is no number that fits"))
}

/// A JSON reader that returns each piece unchanged, as it stands in the text.
struct Json<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Json<'a> {
    fn here(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        while matches!(self.here(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.here()
    }

    /// Consumes this byte if it is the next one.
    fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        match self.takes(byte) {
            true => Ok(()),
            false => Err(format!("{:?} is missing at byte {}", byte as char, self.at)),
        }
    }

    fn end(&mut self) -> Result<(), String> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(format!("something follows at byte {}", self.at)),
        }
    }

    /// Reads an object. `each` gets a name with its quotes and reads the value.
    fn members(
        &mut self,
        mut each: impl FnMut(&mut Self, &'a str) -> Result<(), String>,
    ) -> Result<(), String> {
        self.list(b'{', b'}', |json| {
            let name = json.string()?;
            json.expect(b':')?;
            each(json, name)
        })
    }

    fn elements(
        &mut self,
        each: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.list(b'[', b']', each)
    }

    fn list(
        &mut self,
        open: u8,
        close: u8,
        mut each: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.expect(open)?;
        if self.takes(close) {
            return Ok(());
        }
        loop {
            each(self)?;
            if !self.takes(b',') {
                return self.expect(close);
            }
        }
    }

    /// A string, with its quotes and escapes.
    fn string(&mut self) -> Result<&'a str, String> {
        self.expect(b'"')?;
        let start = self.at - 1;
        while let Some(byte) = self.here() {
            self.at += 1;
            match byte {
                b'"' => return Ok(&self.text[start..self.at]),
                // Skips the escaped byte: an escaped quote does not end the string.
                b'\\' if self.here().is_some_and(|next| next.is_ascii()) => self.at += 1,
                0..0x20 => break,
                _ => {}
            }
        }
        Err(format!("a string at byte {start} does not end"))
    }

    /// A value of any kind, as it stands in the text. Lists and objects in it may be nested up to
    /// `depth` deep.
    fn value(&mut self, depth: usize) -> Result<&'a str, String> {
        let first = self.peek();
        let start = self.at;
        match first {
            Some(b'"') => drop(self.string()?),
            Some(b'{') if depth > 0 => {
                self.members(|json, _| json.value(depth - 1).map(drop))?;
            }
            Some(b'[') if depth > 0 => self.elements(|json| json.value(depth - 1).map(drop))?,
            _ => {
                let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
                while self.here().is_some_and(is_part) {
                    self.at += 1;
                }
                let word = &self.text[start..self.at];
                let is_number = word.parse::<f64>().is_ok_and(f64::is_finite);
                if !is_number && !["true", "false", "null"].contains(&word) {
                    return Err(format!("there is no value at byte {start}"));
                }
            }
        }
        Ok(&self.text[start..self.at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Decoded<FamilyOptions> {
        FamilyOptions::from_stored(text.as_bytes())
    }

    fn written(options: &FamilyOptions) -> String {
        String::from_utf8(options.to_stored()).unwrap()
    }

    #[test]
    fn golden_bytes() {
        let options = FamilyOptions::new().codecs([Codec::None, Codec::Zstd]).block_size(5001);
        let stored = r#"{"codecs":["none","zstd"],"block_size":5001,"filter_bits_per_key":10,"level_size_ratio":10}"#;
        assert_eq!(written(&options), stored);
        assert_eq!(read(stored).unwrap(), options);
    }

    #[test]
    fn what_earlier_versions_wrote_is_read() {
        let options = read(r#"{"level_ratio": 7}"#).unwrap();
        assert_eq!(options, FamilyOptions::new().level_size_ratio(7));
        assert!(written(&options).contains(r#""level_size_ratio":7"#));
        let sizes = read(r#"{"block_size": "4.0 KiB"}"#).unwrap();
        assert_eq!(sizes.block_size, 4096);
        assert_eq!(read("{}").unwrap(), FamilyOptions::new());
    }

    #[test]
    fn a_later_versions_tuning_is_carried_through_every_rewrite() {
        let later = r#"{"codecs":["none","lz4"],"block_size":4096,"filter_bits_per_key":10,"level_size_ratio":10,"ttl":{"secs":[1,2.5e3,true]},"über":"\"\\"}"#;
        let options = read(later).unwrap();
        assert_eq!(written(&options), later);
        let mut replaced = FamilyOptions::new().block_size(512);
        for _ in 0..2 {
            replaced.take_over(&options).unwrap();
            assert_eq!(written(&replaced), later.replace("4096", "512"));
        }
    }

    #[test]
    fn a_merge_operator_is_stored_under_a_name_that_no_older_version_passes_over() {
        let options = FamilyOptions::new().merge_operator("shop.cart v2");
        let stored = written(&options);
        assert!(stored.ends_with(r#","!merge_operator":"shop.cart v2"}"#), "{stored}");
        assert_eq!(read(&stored).unwrap(), options);
        let mut others = FamilyOptions::new().block_size(512);
        others.take_over(&options).unwrap();
        assert_eq!(others.merge_operator.as_deref(), Some("shop.cart v2"));
        let refused = FamilyOptions::new().merge_operator("other").take_over(&options);
        assert!(refused.unwrap_err().to_string().contains("shop.cart v2"));
        for name in ["", "a\\nb", "\u{e4}", &"x".repeat(201)] {
            let stored = format!(r#"{{"!merge_operator":"{name}"}}"#);
            assert!(read(&stored).unwrap_err().is_newer_format(), "{name}");
        }
        for name in ["", "\"", "\\", "\n", "\u{7f}", "\u{e4}", &"x".repeat(201)] {
            assert!(FamilyOptions::new().merge_operator(name).check_asked().is_err(), "{name:?}");
        }
    }

    /// An older build carries it, and writes the tables that it wrote before.
    #[test]
    fn a_bound_on_deletes_is_stored_under_a_name_that_may_be_carried() {
        let options = FamilyOptions::new().delete_within(Duration::from_secs(90));
        let stored = written(&options);
        assert!(stored.ends_with(r#","delete_within_ms":90000}"#), "{stored}");
        assert_eq!(read(&stored).unwrap(), options);
        let bound = |time: Duration| FamilyOptions::new().delete_within(time).check();
        assert!(bound(Duration::from_secs(60)).is_ok() && bound(Duration::MAX).is_err());
        assert!(bound(Duration::from_millis(59_999)).is_err());
    }

    #[test]
    fn a_later_versions_meaning_is_refused_by_name() {
        let error = read(r#"{"!comparator": "reverse"}"#).unwrap_err();
        assert!(error.is_newer_format());
        assert!(error.to_string().contains("!comparator"), "{error}");
        let error = read(r#"{"codecs": ["brotli"]}"#).unwrap_err();
        assert!(error.is_newer_format() && error.to_string().contains("brotli"), "{error}");
    }

    #[test]
    fn options_that_no_call_accepts_are_not_taken_from_disk_either() {
        for json in [
            r#"{"filter_bits_per_key": 4294967295}"#,
            r#"{"filter_bits_per_key": 4294967296}"#,
            r#"{"filter_bits_per_key": -1}"#,
            r#"{"filter_bits_per_key": "10"}"#,
            r#"{"block_size": 0}"#,
            r#"{"block_size": 4294967296}"#,
            r#"{"level_size_ratio": 0}"#,
            r#"{"level_size_ratio": 7, "level_ratio": 7}"#,
            r#"{"codecs": []}"#,
            r#"{"codecs": "lz4"}"#,
            r#"{"delete_within_ms": 59999}"#,
        ] {
            assert!(read(json).unwrap_err().is_newer_format(), "{json}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let deep = format!("{{\"a\": {}{}}}", "[".repeat(20), "]".repeat(20));
        for text in [
            "",
            "{",
            "[]",
            "{}x",
            "{} {}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a":1 "b":2}"#,
            r#"{"a":"\"}"#,
            r#"{"a":inf}"#,
            r#"{"a":NaN}"#,
            r#"{"a":[1}"#,
            "{\"a\":\"\n\"}",
            "{\"a\":\"\\",
            &deep,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
