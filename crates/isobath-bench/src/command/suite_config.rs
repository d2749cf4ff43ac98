//! The configuration of a `suite`: a file, flags over it, and the effective one that is saved.

use super::repeats::{check_minutes, repeats};
use super::run_config::Scalar;
use crate::cli::SuiteFlags;
use crate::engine::{self, EngineConfig, check_rate, check_seconds};
use crate::generate::Compressibility;
use crate::suite::{Row, Scale, rows};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SuiteConfig {
    pub(crate) suite: String,
    pub(crate) engines: Vec<String>,
    pub(crate) scale: Option<f64>,
    pub(crate) threads: Option<u64>,
    pub(crate) repeat: u64,
    /// Repeats end before this many minutes are over. The first is always run as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) minutes: Option<f64>,
    pub(crate) rows: Vec<String>,
    /// Sizes of batches, in place of those that the rows have.
    pub(crate) batches: Vec<u64>,
    /// How long a row lasts at least, and how many write buffers it fills.
    pub(crate) seconds_min: f64,
    pub(crate) buffers_min: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value_size: Option<usize>,
    pub(crate) compressibility: Compressibility,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<f64>,
    pub(crate) keep: bool,
    pub(crate) settle_limit_seconds: f64,
    pub(crate) common: EngineConfig,
    pub(crate) engine: BTreeMap<String, BTreeMap<String, Scalar>>,
}

impl Default for SuiteConfig {
    fn default() -> Self {
        SuiteConfig {
            suite: String::new(),
            engines: vec![super::run_config::DEFAULT_ENGINE.to_owned()],
            scale: None,
            threads: None,
            repeat: 1,
            minutes: None,
            rows: Vec::new(),
            batches: Vec::new(),
            seconds_min: 10.0,
            buffers_min: 8,
            key_size: None,
            value_size: None,
            compressibility: Compressibility::Half,
            rate: None,
            keep: false,
            settle_limit_seconds: 300.0,
            common: EngineConfig { path: PathBuf::from("data/suite"), ..EngineConfig::default() },
            engine: BTreeMap::new(),
        }
    }
}

impl SuiteConfig {
    pub(crate) fn from_flags(flags: &SuiteFlags) -> Result<SuiteConfig> {
        let mut config = match &flags.config {
            Some(path) => SuiteConfig::read(path)?,
            None => SuiteConfig::default(),
        };
        if let Some(name) = &flags.name {
            config.suite.clone_from(name);
        }
        if !flags.shared.engines.is_empty() {
            config.engines.clone_from(&flags.shared.engines);
        }
        if !flags.rows.is_empty() {
            config.rows.clone_from(&flags.rows);
        }
        if !flags.batches.is_empty() {
            config.batches.clone_from(&flags.batches);
        }
        config.seconds_min = flags.seconds.unwrap_or(config.seconds_min);
        if flags.quick || (config.suite == "smoke" && flags.seconds.is_none()) {
            config.seconds_min = 0.0;
        }
        config.scale = flags.scale.or(config.scale);
        config.key_size = flags.key_size.or(config.key_size);
        config.value_size = flags.value_size.or(config.value_size);
        config.threads = flags.threads.or(config.threads);
        (config.repeat, config.minutes) =
            repeats((flags.shared.repeat, flags.shared.minutes), (config.repeat, config.minutes));
        config.compressibility = flags.shared.compressibility.unwrap_or(config.compressibility);
        config.rate = flags.rate.or(config.rate);
        config.keep |= flags.keep;
        if let Some(db) = &flags.shared.engine.db {
            config.common.path.clone_from(db);
        }
        flags.shared.engine.apply(&mut config.common);
        for (engine, knobs) in flags.shared.engine.knobs()? {
            let section = config.engine.entry(engine).or_default();
            section.extend(knobs.into_iter().map(|(name, value)| (name, Scalar::Text(value))));
        }
        config.make_effective();
        config.check()?;
        Ok(config)
    }

    fn read(path: &Path) -> Result<SuiteConfig> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("in {}", path.display()))
    }

    fn make_effective(&mut self) {
        self.scale.get_or_insert(if self.suite == "smoke" { 0.001 } else { 0.1 });
        let cores = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        self.threads.get_or_insert(cores.min(8));
    }

    fn check(&self) -> Result<()> {
        for name in &self.engines {
            engine::find(name)?;
        }
        if let Some(name) = self.engine.keys().find(|name| !self.engines.contains(name)) {
            bail!("there is a section for engine `{name}`, which isn't among the engines to run");
        }
        if self.engines.is_empty() || self.repeat == 0 {
            bail!("at least one engine and one repeat are needed");
        }
        if !self.scale.is_some_and(|scale| scale > 0.0 && scale <= 1000.0) {
            bail!("the scale must be above 0 and at most 1000");
        }
        if !self.threads.is_some_and(|threads| (1..=1024).contains(&threads)) {
            bail!("threads go from 1 to 1024");
        }
        if self.batches.iter().any(|batch| !(1..=1_000_000).contains(batch)) {
            bail!("batches go from 1 to 1000000 keys");
        }
        check_seconds("seconds_min", self.seconds_min)?;
        check_minutes(self.minutes)?;
        check_rate(self.rate)?;
        check_seconds("settle_limit_seconds", self.settle_limit_seconds)?;
        self.common.check()
    }

    /// The suite's rows that were chosen.
    pub(crate) fn chosen_rows(&self) -> Result<Vec<Row>> {
        let scale = Scale {
            factor: self.scale.unwrap_or(0.1),
            threads: self.threads.unwrap_or(1),
            durability: self.common.durability,
            compressibility: self.compressibility,
        };
        let mut rows = self.in_batches(rows(&self.suite, &scale)?);
        if !self.rows.is_empty() {
            let all: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
            let chosen = |name: &str, part: &String| {
                if all.contains(part) { name == part } else { name.contains(part.as_str()) }
            };
            rows.retain(|row| self.rows.iter().any(|part| chosen(&row.name, part)));
            if rows.is_empty() {
                bail!(
                    "no row of {} matches {} (rows: {})",
                    self.suite,
                    self.rows.join(","),
                    all.join(", ")
                );
            }
        }
        let fixed: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
        let sized = rows
            .into_iter()
            .map(|row| (row.name.clone(), row.sized(self.key_size, self.value_size)));
        // Leave out a row whose name, with the sizes asked for, is that of another row.
        let rows: Vec<Row> = sized
            .filter(|(before, row)| *before == row.name || !fixed.contains(&row.name))
            .map(|(_, row)| {
                let buffer = self.common.write_buffer_bytes;
                row.lasting(self.seconds_min, self.buffers_min * buffer).within(buffer)
            })
            .collect();
        rows.iter().try_for_each(Row::check)?;
        for name in &self.engines {
            let kind = engine::find(name)?;
            if kind.transactions.is_none() && rows.iter().any(|row| row.work.transacts()) {
                bail!("{name} has no transactions here: `isobath-bench engines` shows which have");
            }
        }
        Ok(rows)
    }

    /// The rows with the batches that were asked for, where they have any.
    fn in_batches(&self, rows: Vec<Row>) -> Vec<Row> {
        if self.batches.is_empty() {
            return rows;
        }
        let mut batched: Vec<Row> = Vec::new();
        for row in rows {
            let sizes = if row.takes_batches() { &self.batches[..] } else { &[row.batch] };
            for &size in sizes {
                let row = row.clone().batched(size);
                if batched.iter().all(|other| other.name != row.name) {
                    batched.push(row);
                }
            }
        }
        batched
    }

    /// How to open `engine` for a row.
    pub(crate) fn engine_config(
        &self,
        name: &str,
        row: &Row,
        directory: &str,
    ) -> Result<EngineConfig> {
        let mut config = self.common.clone();
        config.path = self.common.path.join(name).join(directory);
        config.durability = engine::find(name)?.serve(row.durability);
        config.cache_bytes = row.cache_bytes.unwrap_or(config.cache_bytes);
        if let Some(section) = self.engine.get(name) {
            config.knobs.extend(section.iter().map(|(knob, value)| (knob.clone(), value.text())));
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn standard(change: impl Fn(&mut SuiteConfig)) -> Vec<Row> {
        let mut config = SuiteConfig { suite: "standard".to_owned(), ..SuiteConfig::default() };
        change(&mut config);
        config.make_effective();
        config.chosen_rows().unwrap()
    }

    #[test]
    fn a_name_chooses_its_row_alone_and_a_part_of_one_all_that_have_it() {
        let named = standard(|config| config.rows = vec!["write_random_b1".to_owned()]);
        assert_eq!(named.len(), 1);
        let like = standard(|config| config.rows = vec!["write_random_b".to_owned()]);
        assert!(like.len() > 5);
    }

    #[test]
    fn batches_are_those_that_were_asked_for_and_no_row_comes_twice() {
        let rows = standard(|config| config.batches = vec![1, 64]);
        let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names.len(), rows.len());
        for name in
            ["write_random_b64", "delete_random_b1", "mixed_uniform_b64", "write_random_b64_v4096"]
        {
            assert!(names.contains(name), "{name} in {names:?}");
        }
        assert!(rows.iter().all(|row| !row.takes_batches() || [1, 64].contains(&row.batch)));
    }

    #[test]
    fn rows_last_ten_seconds_and_eight_write_buffers_unless_told() {
        let rows = standard(|_| ());
        let write = rows.iter().find(|row| row.name == "write_random_b1").unwrap();
        assert_eq!(write.seconds_min, 10.0);
        assert!(write.operations * write.entry_bytes() >= 8 * (64 << 20));
        let quick = standard(|config| config.seconds_min = 0.0);
        assert!(quick.iter().all(|row| row.seconds_min == 0.0 && row.operations <= 2_000_000));
    }

    #[test]
    fn sizes_of_keys_and_values_can_be_chosen_at_about_the_same_bytes() {
        let usual = standard(|_| ());
        let sized =
            standard(|config| (config.key_size, config.value_size) = (Some(64), Some(1000)));
        let names: BTreeSet<&str> = sized.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names.len(), sized.len());
        assert!(sized.iter().all(|row| row.key_size == 64 && row.name.contains("_k64")));
        let (before, after) = (&usual[0], &sized[0]);
        assert_eq!((after.name.as_str(), after.value_size), ("write_seq_b1_k64_v1000", 1000));
        let bytes = |row: &Row| row.keys * row.entry_bytes();
        assert!(bytes(after).abs_diff(bytes(before)) < bytes(before) / 100);
        assert!(sized.iter().any(|row| row.name.contains("_v4096_k64") && row.value_size == 4096));
        let same = standard(|config| config.value_size = Some(4096));
        let count =
            |rows: &[Row]| rows.iter().filter(|row| row.name == "write_random_b1_v4096").count();
        assert_eq!(count(&same), 1, "not measured twice");
    }
}
