//! The highest rate at which a workload's units stay under a latency objective.
//!
//! A closed loop finds what the engine can do at most; bisection in open loop then finds the
//! highest rate whose p99, counted from when a unit was due, is under the objective. Every step is
//! a record.

use super::run::{point, run_one};
use super::run_config::RunConfig;
use crate::drive::Stop;
use crate::lua::Workload;
use crate::measure::{Latency, OpKind};
use crate::report::{Measured, Report};
use anyhow::Result;
use std::collections::BTreeMap;

const STEPS: u32 = 7;

/// Runs the ramp of every engine, number of threads and parameter.
pub(super) fn run_ramps(
    config: &RunConfig,
    workload: &Workload,
    objective_ms: f64,
    stop: &Stop,
    report: &mut Report,
) -> Result<()> {
    for params in config.combinations() {
        for &threads in &config.threads {
            for name in &config.engines {
                let mut climb = Climb {
                    config,
                    workload,
                    name,
                    threads,
                    params: &params,
                    stop,
                    loaded: config.no_load,
                    steps: 0,
                };
                match climb.run(objective_ms, report) {
                    Ok(rate) => println!(
                        "{name} t{threads}: {rate:.0} units/s keep p99 under {objective_ms} ms"
                    ),
                    Err(error) => {
                        report.failures.push(format!("ramp of {name} t{threads}: {error:#}"))
                    }
                }
            }
        }
    }
    Ok(())
}

struct Climb<'a> {
    config: &'a RunConfig,
    workload: &'a Workload,
    name: &'a str,
    threads: u64,
    params: &'a BTreeMap<String, String>,
    stop: &'a Stop,
    loaded: bool,
    steps: u64,
}

impl Climb<'_> {
    /// The highest rate found that meets the objective; 0 when none does.
    fn run(&mut self, objective_ms: f64, report: &mut Report) -> Result<f64> {
        let closed = self.step(None)?;
        let (mut low, mut high) = (0.0, closed.per_second(closed.units));
        report.rows.push(closed);
        for _ in 0..STEPS {
            if self.stop.requested() {
                break;
            }
            let rate = (low + high) / 2.0;
            let measured = self.step(Some(rate))?;
            let kept = measured.per_second(measured.units) >= rate * 0.98;
            if kept && p99_ms(&measured) <= objective_ms {
                low = rate
            } else {
                high = rate
            }
            report.rows.push(measured);
        }
        Ok(low)
    }

    fn step(&mut self, rate: Option<f64>) -> Result<Measured> {
        let mut params = self.params.clone();
        params.extend(rate.map(|rate| ("rate".to_owned(), format!("{rate:.0}"))));
        let mut point =
            point(self.config, self.workload, self.name, self.threads, &params, 0, !self.loaded)?;
        (point.rate, point.number) = (rate, self.steps);
        self.steps += 1;
        let measured = run_one(self.config, point, false, self.stop)?;
        self.loaded = true;
        Ok(measured)
    }
}

fn p99_ms(measured: &Measured) -> f64 {
    let unit = measured.kinds.iter().find(|entry| entry.kind == OpKind::Unit);
    // There are too few units for a p99. The longest time is never below it.
    let slow = |latency: &Latency| latency.p99_us.unwrap_or(latency.max_us) / 1e3;
    unit.map_or(f64::INFINITY, |entry| slow(&entry.latency))
}
