//! A small real report for the tests of the sinks: two engines over the rows of a tiny suite.

use super::record::{REPORT_FORMAT, Report};
use crate::drive::Stop;
use crate::engine::{Durability, EngineConfig};
use crate::generate::Compressibility;
use crate::measure::Machine;
use crate::suite::{Phase, Row, Scale, SuiteJob, rows, run_job};
use std::path::Path;
use std::sync::LazyLock;

static SAMPLE: LazyLock<Report> = LazyLock::new(build);

pub(crate) fn sample_report() -> Report {
    SAMPLE.clone()
}

fn build() -> Report {
    let scale = Scale {
        factor: 0.0001,
        threads: 2,
        durability: Durability::Process,
        compressibility: Compressibility::Pattern,
    };
    let mut report = Report {
        format: REPORT_FORMAT,
        run_id: "test".to_owned(),
        title: "a test <report> & more".to_owned(),
        command: "isobath-bench suite standard".to_owned(),
        config: "suite = \"standard\"\n".to_owned(),
        machine: Machine::read(Path::new("/")),
        rows: Vec::new(),
        failures: Vec::new(),
        warnings: vec!["only a test".to_owned()],
    };
    for row in rows("standard", &scale).unwrap() {
        // All repeats do the same work, however busy the machine is.
        let row = Row { seconds_max: 600.0, ..row };
        for engine in ["memory", "null"] {
            for repeat in 0..5 {
                let job = SuiteJob {
                    engine: engine.to_owned(),
                    config: EngineConfig::default(),
                    row: row.clone(),
                    phase: Phase::Both,
                    repeat,
                    rate: None,
                    settle_limit_seconds: 0.0,
                };
                report.rows.push(run_job(&job, &Stop::default()).unwrap());
            }
        }
    }
    report
}
