//! Streams of events. Events are appended in order, and read back by stream or in order of arrival.
//!
//! ```text
//! family `streams`   stream, 0, version (8 bytes)  ->  event
//! family `arrivals`  position (8 bytes)            ->  the event's key in `streams`
//! ```
//!
//! One transaction writes both, so a crash cannot leave an event in only one of them. It also reads
//! the last version and the last position, so two appends never give out the same one.
//!
//! `cargo run -p isobath --example event_store [DIRECTORY]`

use isobath::{Db, Family, Readable};
use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let given = std::env::args_os().nth(1);
    run(given.as_deref().map_or(scratch.path(), Path::new), &mut io::stdout())
}

struct EventStore {
    db: Db,
    streams: Family,
    arrivals: Family,
}

/// The result of `append`: the version of the stream's last event, or the unexpected version found.
type Appended = Result<u64, u64>;

impl EventStore {
    fn open(dir: &Path) -> isobath::Result<EventStore> {
        let db = Db::open(dir)?;
        let [streams, arrivals] = db.families(["streams", "arrivals"])?;
        Ok(EventStore { db, streams, arrivals })
    }

    /// The version of the last event of a stream; 0 if it has none.
    fn version(&self, stream: &str) -> isobath::Result<u64> {
        newest_version(&self.streams, stream)
    }

    /// Appends events to a stream if its last event has the version `seen`. If another append comes
    /// between, the closure runs again.
    fn append(&self, stream: &str, seen: u64, events: &[&str]) -> isobath::Result<Appended> {
        self.db.transact(|tx| {
            let (streams, arrivals) = (tx.of(&self.streams), tx.of(&self.arrivals));
            let version = newest_version(&streams, stream)?;
            if version != seen {
                return Ok(Err(version));
            }
            let position = arrivals.last()?.map_or(0, |(position, _)| number(&position));
            for (nth, event) in (1u64..).zip(events) {
                let key = event_key(stream, version + nth);
                arrivals.put((position + nth).to_be_bytes(), &key)?;
                streams.put(&key, event)?;
            }
            Ok(Ok(version + events.len() as u64))
        })
    }

    /// The events of a stream after a version.
    fn read(&self, stream: &str, behind: u64) -> isobath::Result<Vec<String>> {
        let range = event_key(stream, behind + 1)..=event_key(stream, u64::MAX);
        self.streams.range(range).map(|item| Ok(text(&item?.1))).collect()
    }

    /// All events after a position. A subscriber that remembers its position reads them this way.
    fn arrived(&self, behind: u64) -> isobath::Result<Vec<(u64, String)>> {
        // Reads both families at one moment.
        let snapshot = self.db.snapshot();
        let streams = snapshot.of(&self.streams);
        let behind = (behind + 1).to_be_bytes();
        let arrivals = snapshot.of(&self.arrivals).range(behind..);
        arrivals
            .map(|item| {
                let (position, key) = item?;
                let event = streams.get(&key)?.expect("one transaction wrote both");
                Ok((number(&position), text(&event)))
            })
            .collect()
    }
}

/// The version of the last event of a stream, as a family or its part of a transaction shows it.
fn newest_version(streams: &impl Readable, stream: &str) -> isobath::Result<u64> {
    let newest = streams.prefix(stream_prefix(stream)).next_back().transpose()?;
    Ok(newest.map_or(0, |(key, _)| version_of(&key)))
}

/// A zero ends the stream's name, so that no stream's keys begin with the name of another.
fn stream_prefix(stream: &str) -> Vec<u8> {
    [stream.as_bytes(), &[0]].concat()
}

fn event_key(stream: &str, version: u64) -> Vec<u8> {
    [stream.as_bytes(), &[0], &version.to_be_bytes()].concat()
}

fn version_of(key: &[u8]) -> u64 {
    number(&key[key.len() - 8..])
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn run(dir: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let store = EventStore::open(dir)?;
    let seen = store.version("order-7")?;
    let version = store.append("order-7", seen, &["placed", "paid"])?;
    writeln!(out, "order-7: {version:?}")?;
    let seen = store.version("order-8")?;
    store.append("order-8", seen, &["placed"])?.expect("only this thread writes");

    // A caller that has not seen the newest event is refused. It can read the event and decide
    // again.
    writeln!(out, "a late append: {:?}", store.append("order-7", 1, &["cancelled"])?)?;
    store.append("order-7", 2, &["sent"])?.expect("2 is the newest");
    drop(store);

    let store = EventStore::open(dir)?;
    writeln!(out, "order-7 behind 1: {:?}", store.read("order-7", 1)?)?;
    for (position, event) in store.arrived(1)? {
        writeln!(out, "{position}: {event}")?;
    }
    Ok(())
}
