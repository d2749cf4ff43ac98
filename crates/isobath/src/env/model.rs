//! Runs models: small programs of a few threads whose schedules a checker chooses.
//!
//! - `cfg(loom)` explores every interleaving up to a number of preemptions, under the memory model
//!   of the language. It suits a lock or a frontier.
//! - `cfg(shuttle)` runs as many random schedules as the model asks for. Half of them have few
//!   switches, at arbitrary places (PCT, Burckhardt et al., ASPLOS 2010). All accesses are in one
//!   total order. It suits anything up to a whole database.
//!
//! Neither checker has time: a wait with a timeout ends only when another thread ends it. So a
//! wake-up that a timeout would replace is a deadlock here, and is reported.
//!
//! Each model prints what it explored. `ISOBATH_MODEL_TIMES=20` multiplies the number of random
//! schedules, and `SHUTTLE_RANDOM_SEED=7` draws different ones. A random schedule that fails prints
//! itself; `shuttle::replay` runs it again.

#[cfg(shuttle)]
pub(crate) use random::{ModelThreads, check, env};

/// The name of the test whose closure `model` is, such as `isobath::wal::model::name`.
fn name_of<M>(_model: &M) -> &'static str {
    let name = std::any::type_name::<M>();
    name.trim_end_matches("::{{closure}}").trim_start_matches("isobath::")
}

fn tell(name: &str, executions: usize, began: std::time::Instant) {
    println!("model {name}: {executions} executions, {:.1} s", began.elapsed().as_secs_f64());
}

/// Explores every interleaving with at most `preemptions` preemptions.
#[cfg(loom)]
pub(crate) fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    let (name, began) = (name_of(&model), std::time::Instant::now());
    let executions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    tell(name, executions.load(Ordering::Relaxed), began);
}

#[cfg(shuttle)]
mod random {
    use crate::env::{Clock, Env, Priority, Random, ThreadHandle, Threads};
    use crate::vfs::FileSystem;
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use shuttle::{Config, MaxSteps, Runner};
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// The same schedules each time, unless `SHUTTLE_RANDOM_SEED` is set.
    const SEED: u64 = 0;

    /// How many switches a schedule of the second kind has.
    const SWITCHES: usize = 3;

    /// Runs a model under `schedules` random schedules.
    pub(crate) fn check(schedules: usize, model: impl Fn() + Send + Sync + 'static) {
        let (name, began) = (super::name_of(&model), std::time::Instant::now());
        let each = schedules * times() / 2;
        let model = Arc::new(model);
        let again = Arc::clone(&model);
        let uniform = RandomScheduler::new_from_seed(SEED, each);
        let switching = PctScheduler::new_from_seed(SEED, SWITCHES, each);
        let executions = Runner::new(uniform, config()).run(move || model())
            + Runner::new(switching, config()).run(move || again());
        super::tell(name, executions, began);
    }

    fn config() -> Config {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.max_steps = MaxSteps::FailAfter(20_000_000);
        config.silence_warnings = true;
        config
    }

    fn times() -> usize {
        let text = std::env::var("ISOBATH_MODEL_TIMES").unwrap_or("1".to_owned());
        text.parse().unwrap_or_else(|_| panic!("ISOBATH_MODEL_TIMES={text} is not a number"))
    }

    /// The environment of a database in a model, over `fs`.
    pub(crate) fn env(fs: Arc<dyn FileSystem>) -> Env {
        Env {
            fs,
            clock: Arc::new(ModelClock(AtomicU64::new(0))),
            random: Arc::new(ModelRandom(AtomicU64::new(0))),
            threads: Arc::new(ModelThreads),
        }
    }

    /// Threads whose schedule the checker chooses.
    pub(crate) struct ModelThreads;

    struct ModelHandle(shuttle::thread::JoinHandle<()>);

    impl ThreadHandle for ModelHandle {
        fn join(self: Box<Self>) {
            self.0.join().expect("a background thread does not panic");
        }
    }

    impl Threads for ModelThreads {
        fn spawn(
            &self,
            _name: String,
            _priority: Priority,
            body: Box<dyn FnOnce() + Send>,
        ) -> io::Result<Box<dyn ThreadHandle>> {
            Ok(Box::new(ModelHandle(shuttle::thread::spawn(body))))
        }

        fn sleep(&self, _duration: Duration) {
            shuttle::thread::yield_now();
        }

        fn parallelism(&self) -> usize {
            2
        }
    }

    /// A clock that advances a tenth of a millisecond with each reading.
    struct ModelClock(AtomicU64);

    impl Clock for ModelClock {
        fn now_ns(&self) -> u64 {
            self.0.fetch_add(100_000, Ordering::Relaxed)
        }

        fn unix_ms(&self) -> u64 {
            self.now_ns() / 1_000_000
        }
    }

    struct ModelRandom(AtomicU64);

    impl Random for ModelRandom {
        fn next_u64(&self) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed)
        }
    }
}
