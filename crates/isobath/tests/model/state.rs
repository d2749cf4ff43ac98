//! The expected content of a database: the states it went through, oldest first.

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) type Map = BTreeMap<Vec<u8>, Arc<[u8]>>;

/// A family, identified by the number of its creation in this history.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Keyspace {
    pub(crate) name: String,
    /// Shared by the states in which it is the same.
    pub(crate) map: Arc<Map>,
}

/// The database at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    pub(crate) families: BTreeMap<u32, Keyspace>,
}

impl State {
    /// What a program can see: contents by family name.
    pub(crate) fn by_name(&self) -> BTreeMap<&str, &Map> {
        self.families.values().map(|family| (family.name.as_str(), &*family.map)).collect()
    }

    /// The map of a family, to be changed.
    pub(crate) fn map_mut(&mut self, id: u32) -> &mut Map {
        Arc::make_mut(&mut self.families.get_mut(&id).unwrap().map)
    }

    pub(crate) fn nth(&self, index: u8) -> u32 {
        *self.families.keys().nth(index as usize % self.families.len()).unwrap()
    }

    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.families.values().any(|family| family.name == name)
    }
}

/// Every state since the last power cut.
#[derive(Debug)]
pub(crate) struct History {
    states: Vec<Arc<State>>,
    /// The index of the newest state that must survive a power cut.
    durable: usize,
}

impl History {
    pub(crate) fn new(state: State) -> History {
        History { states: vec![Arc::new(state)], durable: 0 }
    }

    pub(crate) fn now(&self) -> &Arc<State> {
        self.states.last().unwrap()
    }

    pub(crate) fn push(&mut self, state: State) {
        self.states.push(Arc::new(state));
    }

    pub(crate) fn all_is_durable(&mut self) {
        self.durable = self.states.len() - 1;
    }

    /// How the content that was read differs from the newest state.
    fn difference(&self, seen: &BTreeMap<String, Map>) -> String {
        let now = self.now().by_name();
        let mut lines = vec![format!("families {:?}, expected {:?}", seen.keys(), now.keys())];
        for (name, expected) in now {
            let Some(found) = seen.get(name) else { continue };
            for key in found.keys().chain(expected.keys()) {
                let (found, expected) = (found.get(key), expected.get(key));
                if found != expected {
                    let short = |v: &Arc<[u8]>| v[..v.len().min(8)].escape_ascii().to_string();
                    let (found, expected) = (found.map(short), expected.map(short));
                    let key = key.escape_ascii();
                    lines.push(format!("{name} {key}: found {found:?}, expected {expected:?}"));
                }
            }
        }
        lines.join("\n")
    }

    /// Goes back to the newest state that looks like `seen` to a program. Fails if a power cut must
    /// not leave that state.
    pub(crate) fn cut_to(&mut self, seen: &BTreeMap<String, Map>) -> Result<(), String> {
        let looks_so = |state: &State| {
            let ours = state.by_name();
            ours.len() == seen.len() && ours.iter().all(|(name, map)| seen.get(*name) == Some(*map))
        };
        let Some(at) = self.states.iter().rposition(|state| looks_so(state)) else {
            return Err(format!("in no state it ever was in: {}", self.difference(seen)));
        };
        if at < self.durable {
            return Err(format!(
                "state {at} is left, but {} was acknowledged as durable",
                self.durable
            ));
        }
        let state = self.states.swap_remove(at);
        *self = History { states: vec![state], durable: 0 };
        Ok(())
    }
}
