//! The open families, by id and by name. Looked up when a handle is made and by background jobs; reads and
//! writes go through handles.

use super::family::Family;
use crate::components::sync::Mutex;
use crate::error::{Error, Result};
use crate::format::FamilyId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Every open family.
#[derive(Default)]
pub(crate) struct Families {
    lists: Mutex<Lists>,
}

#[derive(Default)]
struct Lists {
    by_id: BTreeMap<FamilyId, Arc<Family>>,
    by_name: BTreeMap<Arc<str>, FamilyId>,
}

impl Families {
    pub(crate) fn insert(&self, family: Arc<Family>) {
        let mut lists = self.lists.lock();
        lists.by_name.insert(family.name(), family.id);
        lists.by_id.insert(family.id, family);
    }

    pub(crate) fn remove(&self, id: FamilyId) {
        let mut lists = self.lists.lock();
        if let Some(family) = lists.by_id.remove(&id) {
            lists.by_name.remove(&family.name());
        }
    }

    pub(crate) fn rename(&self, id: FamilyId, name: &str) {
        let mut lists = self.lists.lock();
        let Some(family) = lists.by_id.get(&id).cloned() else { return };
        lists.by_name.remove(&family.name());
        family.rename(name);
        lists.by_name.insert(family.name(), id);
    }

    pub(crate) fn by_id(&self, id: FamilyId) -> Option<Arc<Family>> {
        self.lists.lock().by_id.get(&id).cloned()
    }

    /// The family of a name. One whose drop is logged but not confirmed counts as gone, as it does for reads.
    pub(crate) fn by_name(&self, name: &str) -> Result<Arc<Family>> {
        let lists = self.lists.lock();
        let family = lists.by_name.get(name).map(|id| &lists.by_id[id]);
        let family = family.filter(|family| !family.is_dropped()).cloned();
        family.ok_or_else(|| Error::UnknownFamily(name.to_owned()))
    }

    pub(crate) fn contains_name(&self, name: &str) -> bool {
        self.lists.lock().by_name.contains_key(name)
    }

    /// Every family, by ascending id.
    pub(crate) fn all(&self) -> Vec<Arc<Family>> {
        self.lists.lock().by_id.values().cloned().collect()
    }
}
