//! The configuration of a `run`: a file, flags over it, and the effective one that is saved so that
//! the run can be repeated.
//!
//! ```toml
//! workload = "workloads/mixed.lua"
//! engines = ["isobath", "rocksdb"]
//! threads = [1, 4]
//! [settings]
//! items = 500000
//! [sweep]
//! B = [1, 64]
//! [common]
//! durability = "process"
//! [engine.rocksdb]
//! level0_stop_writes_trigger = 36
//! ```

use super::repeats::{check_minutes, repeats};
use crate::cli::RunFlags;
use crate::engine::{self, EngineConfig, check_rate, check_seconds};
use crate::generate::{Compressibility, KeyShape};
use crate::lua::{Settings, Workload};
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) const DEFAULT_ENGINE: &str = "isobath";

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RunConfig {
    pub(crate) workload: PathBuf,
    pub(crate) engines: Vec<String>,
    pub(crate) threads: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) load_threads: Option<u64>,
    pub(crate) seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) units: Option<u64>,
    pub(crate) repeat: u64,
    /// Repeats end before this many minutes are over. The first is always run as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) minutes: Option<f64>,
    pub(crate) load_once: bool,
    pub(crate) no_load: bool,
    pub(crate) settle: bool,
    pub(crate) settle_limit_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ramp_p99_ms: Option<f64>,
    pub(crate) settings: Overrides,
    pub(crate) sweep: BTreeMap<String, Vec<Scalar>>,
    /// `path` is the directory that holds one database for each engine.
    pub(crate) common: EngineConfig,
    pub(crate) engine: BTreeMap<String, BTreeMap<String, Scalar>>,
}

/// What replaces a workload's own defaults.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Overrides {
    pub(crate) items: Option<u64>,
    pub(crate) users: Option<u64>,
    pub(crate) batch: Option<u64>,
    pub(crate) key_size: Option<usize>,
    pub(crate) value_size: Option<usize>,
    pub(crate) keys: Option<KeyShape>,
    pub(crate) compressibility: Option<Compressibility>,
    pub(crate) seed: Option<u64>,
}

/// A value of a file that is passed on as text.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Scalar {
    Boolean(bool),
    Integer(i64),
    Number(f64),
    Text(String),
}

impl Scalar {
    pub(crate) fn text(&self) -> String {
        match self {
            Scalar::Boolean(value) => value.to_string(),
            Scalar::Integer(value) => value.to_string(),
            Scalar::Number(value) => value.to_string(),
            Scalar::Text(value) => value.clone(),
        }
    }
}

impl Default for RunConfig {
    fn default() -> Self {
        RunConfig {
            workload: PathBuf::new(),
            engines: vec![DEFAULT_ENGINE.to_owned()],
            threads: vec![1],
            load_threads: None,
            seconds: 10.0,
            units: None,
            repeat: 1,
            minutes: None,
            load_once: false,
            no_load: false,
            settle: false,
            settle_limit_seconds: 120.0,
            rate: None,
            ramp_p99_ms: None,
            settings: Overrides::default(),
            sweep: BTreeMap::new(),
            common: EngineConfig::default(),
            engine: BTreeMap::new(),
        }
    }
}

impl RunConfig {
    /// The file that was named, with the flags over it.
    pub(crate) fn from_flags(flags: &RunFlags) -> Result<RunConfig> {
        let mut config = match &flags.config {
            Some(path) => RunConfig::read(path)?,
            None => RunConfig::default(),
        };
        config.apply(flags)?;
        config.check()?;
        Ok(config)
    }

    fn read(path: &Path) -> Result<RunConfig> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("in {}", path.display()))
    }

    fn apply(&mut self, flags: &RunFlags) -> Result<()> {
        if let Some(workload) = &flags.workload {
            self.workload.clone_from(workload);
        }
        if !flags.shared.engines.is_empty() {
            self.engines.clone_from(&flags.shared.engines);
        }
        if !flags.threads.is_empty() {
            self.threads.clone_from(&flags.threads);
        }
        self.seconds = flags.seconds.unwrap_or(self.seconds);
        (self.repeat, self.minutes) =
            repeats((flags.shared.repeat, flags.shared.minutes), (self.repeat, self.minutes));
        self.load_threads = flags.load_threads.or(self.load_threads);
        self.units = flags.units.or(self.units);
        self.rate = flags.rate.or(self.rate);
        self.ramp_p99_ms = flags.ramp_p99_ms.or(self.ramp_p99_ms);
        self.load_once |= flags.load_once;
        self.no_load |= flags.no_load;
        self.settle |= flags.settle;
        let settings = &mut self.settings;
        settings.items = flags.items.or(settings.items);
        settings.users = flags.users.or(settings.users);
        settings.batch = flags.batch.or(settings.batch);
        settings.key_size = flags.key_size.or(settings.key_size);
        settings.value_size = flags.value_size.or(settings.value_size);
        settings.compressibility = flags.shared.compressibility.or(settings.compressibility);
        settings.seed = flags.seed.or(settings.seed);
        for text in &flags.sweep {
            let (name, values) =
                text.split_once('=').ok_or_else(|| anyhow!("--sweep {text}: write NAME=V,V"))?;
            self.sweep.insert(
                name.to_owned(),
                values.split(',').map(|value| Scalar::Text(value.to_owned())).collect(),
            );
        }
        flags.shared.engine.apply(&mut self.common);
        for (engine, knobs) in flags.shared.engine.knobs()? {
            let section = self.engine.entry(engine).or_default();
            section.extend(knobs.into_iter().map(|(name, value)| (name, Scalar::Text(value))));
        }
        if let Some(db) = &flags.shared.engine.db {
            self.common.path.clone_from(db);
        }
        if self.common.path.as_os_str().is_empty() {
            let stem = self.workload.file_stem().unwrap_or_default();
            self.common.path = Path::new("data").join(stem);
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.workload.as_os_str().is_empty() {
            bail!("no workload: name a Lua file");
        }
        if self.engines.is_empty() || self.threads.is_empty() || self.repeat == 0 {
            bail!("at least one engine, one number of threads and one repeat are needed");
        }
        if self
            .threads
            .iter()
            .chain(&self.load_threads)
            .any(|threads| !(1..=1024).contains(threads))
        {
            bail!("threads go from 1 to 1024");
        }
        check_seconds("seconds", self.seconds)?;
        check_seconds("settle_limit_seconds", self.settle_limit_seconds)?;
        if self.seconds <= 0.0 || self.ramp_p99_ms.is_some_and(|ms| ms.is_nan() || ms <= 0.0) {
            bail!("seconds, and a ramp's milliseconds, must be positive");
        }
        check_minutes(self.minutes)?;
        check_rate(self.rate)?;
        self.common.check()?;
        for name in &self.engines {
            let kind = engine::find(name)?;
            if self.no_load && !kind.persistent {
                bail!("{name} keeps nothing between runs, so --no-load has nothing to use");
            }
        }
        for name in self.engine.keys() {
            if !self.engines.contains(name) {
                bail!(
                    "there is a section for engine `{name}`, which isn't among the engines to run"
                );
            }
        }
        Ok(())
    }

    /// The workload's defaults with this run's own settings over them.
    pub(crate) fn settings(&self, workload: &Workload) -> Result<Settings> {
        let defaults = &workload.defaults;
        let settings = Settings {
            items: self.settings.items.unwrap_or(defaults.items),
            users: self.settings.users.unwrap_or(defaults.users),
            batch: self.settings.batch.unwrap_or(defaults.batch),
            key_size: self.settings.key_size.unwrap_or(defaults.key_size),
            value_size: self.settings.value_size.unwrap_or(defaults.value_size),
            keys: self.settings.keys.unwrap_or(defaults.keys),
            compressibility: self.settings.compressibility.unwrap_or(defaults.compressibility),
            seed: self.settings.seed.unwrap_or(defaults.seed),
        };
        settings.check()?;
        Ok(settings)
    }

    /// Fills in what the workload decides, so that the saved run doesn't depend on defaults.
    pub(crate) fn make_effective(&mut self, workload: &Workload) -> Result<()> {
        let settings = self.settings(workload)?;
        self.settings = Overrides {
            items: Some(settings.items),
            users: Some(settings.users),
            batch: Some(settings.batch),
            key_size: Some(settings.key_size),
            value_size: Some(settings.value_size),
            keys: Some(settings.keys),
            compressibility: Some(settings.compressibility),
            seed: Some(settings.seed),
        };
        for (name, values) in &workload.sweep {
            self.sweep
                .entry(name.clone())
                .or_insert_with(|| values.iter().cloned().map(Scalar::Text).collect());
        }
        self.load_threads.get_or_insert(
            std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
        );
        Ok(())
    }

    /// How to open `engine`.
    pub(crate) fn engine_config(&self, name: &str) -> Result<EngineConfig> {
        let mut config = self.common.clone();
        config.path = self.common.path.join(name);
        config.durability = engine::find(name)?.serve(config.durability);
        if let Some(section) = self.engine.get(name) {
            config.knobs.extend(section.iter().map(|(knob, value)| (knob.clone(), value.text())));
        }
        Ok(config)
    }

    /// Every combination of the swept values.
    pub(crate) fn combinations(&self) -> Vec<BTreeMap<String, String>> {
        let mut all = vec![BTreeMap::new()];
        for (name, values) in &self.sweep {
            all = all
                .into_iter()
                .flat_map(|chosen| {
                    values.iter().map(move |value| {
                        let mut chosen = chosen.clone();
                        chosen.insert(name.clone(), value.text());
                        chosen
                    })
                })
                .collect();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error =
            toml::from_str::<RunConfig>("workload = 'x'\nthread = [1]\n").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("thread"), "{error}");
    }

    #[test]
    fn sections_reach_their_engine_as_text() {
        let config: RunConfig =
            toml::from_str("engines = ['memory']\n[engine.memory]\na = 36\nb = true\nc = 'x'\n")
                .unwrap();
        let knobs = config.engine_config("memory").unwrap().knobs;
        assert_eq!(knobs["a"], "36");
        assert_eq!(knobs["b"], "true");
        assert_eq!(knobs["c"], "x");
    }

    #[test]
    fn sweeps_multiply() {
        let config: RunConfig =
            toml::from_str("[sweep]\nA = [1, 2]\nB = ['x', 'y', 'z']\n").unwrap();
        assert_eq!(config.combinations().len(), 6);
        assert_eq!(RunConfig::default().combinations().len(), 1);
    }

    #[test]
    fn the_saved_form_reads_back_the_same() {
        let config = RunConfig { workload: "w.lua".into(), ..RunConfig::default() };
        let text = toml::to_string(&config).unwrap();
        let again: RunConfig = toml::from_str(&text).unwrap();
        assert_eq!(toml::to_string(&again).unwrap(), text);
    }
}
