//! The open families, by id and by name. They are looked up when a handle is made, and by
//! background jobs; reads and writes go through handles.

use super::family::Keyspace;
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::env::sync::{Mutex, Rank};
use crate::error::{Error, Result};
use crate::format::FamilyId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All open families.
pub(crate) struct Families {
    lists: Mutex<Lists>,
    /// Counts drops: one more when one begins, and one more when it has ended.
    drops: AtomicU64,
}

impl Default for Families {
    fn default() -> Self {
        let lists = Mutex::new(Rank::Families, Lists::default());
        Families { lists, drops: AtomicU64::new(0) }
    }
}

#[derive(Default)]
struct Lists {
    by_id: BTreeMap<FamilyId, Arc<Keyspace>>,
    by_name: BTreeMap<Arc<str>, FamilyId>,
}

impl Families {
    pub(crate) fn insert(&self, family: Arc<Keyspace>) {
        let mut lists = self.lists.lock();
        let namesake = lists.by_name.insert(family.name(), family.id);
        debug_assert!(namesake.is_none(), "two families have one name");
        let twin = lists.by_id.insert(family.id, family);
        debug_assert!(twin.is_none(), "two families have one id");
    }

    pub(crate) fn remove(&self, id: FamilyId) {
        let mut lists = self.lists.lock();
        if let Some(family) = lists.by_id.remove(&id) {
            let named = lists.by_name.remove(&family.name());
            debug_assert_eq!(named, Some(id), "a family is listed by its name");
        }
    }

    pub(crate) fn rename(&self, id: FamilyId, name: &str) {
        let mut lists = self.lists.lock();
        let Some(family) = lists.by_id.get(&id).cloned() else { return };
        lists.by_name.remove(&family.name());
        family.rename(name);
        let namesake = lists.by_name.insert(family.name(), id);
        debug_assert!(namesake.is_none(), "two families have one name");
    }

    /// Lists these, with these names, instead of all others. Returns those that are gone. Who looks
    /// for a name finds the family that has it before or the one that has it then.
    pub(crate) fn replace_all(
        &self,
        families: impl Iterator<Item = (Arc<Keyspace>, Arc<str>)>,
    ) -> Vec<Arc<Keyspace>> {
        let mut lists = self.lists.lock();
        let before = std::mem::take(&mut *lists);
        for (family, name) in families {
            if family.name() != name {
                family.rename(&name);
            }
            let namesake = lists.by_name.insert(name, family.id);
            debug_assert!(namesake.is_none(), "two families have one name");
            lists.by_id.insert(family.id, family);
        }
        let is_there = |family: &Arc<Keyspace>| {
            lists.by_id.get(&family.id).is_some_and(|listed| Arc::ptr_eq(listed, family))
        };
        before.by_id.into_values().filter(|family| !is_there(family)).collect()
    }

    /// Notes that a drop begins, before it is reserved, or that it has ended, after it is marked or
    /// has failed. One follows the other: there is one change of families at a time.
    pub(crate) fn note_drop(&self) {
        self.drops.fetch_add(1, Ordering::AcqRel);
    }

    /// How many drops have begun, and how many have ended.
    #[inline]
    pub(crate) fn drops(&self) -> u64 {
        self.drops.load(Ordering::Acquire)
    }

    /// True if a family may have been dropped before an LSN that is reserved by now, and after
    /// there were so many `drops`.
    #[inline]
    pub(crate) fn may_have_dropped(&self, drops: u64) -> bool {
        let now = self.drops();
        debug_assert!(drops <= now, "drops are counted up");
        !drops.is_multiple_of(2) || now != drops
    }

    pub(crate) fn by_id(&self, id: FamilyId) -> Option<Arc<Keyspace>> {
        self.lists.lock().by_id.get(&id).cloned()
    }

    /// The family with this name. A family whose drop is in the log but not yet in the manifest
    /// counts as gone, as it does for reads.
    pub(crate) fn by_name(&self, name: &str) -> Result<Arc<Keyspace>> {
        let lists = self.lists.lock();
        let family = lists.by_name.get(name).map(|id| &lists.by_id[id]);
        let family = family.filter(|family| !family.is_dropped()).cloned();
        family.ok_or_else(|| Error::unknown_family(name))
    }

    pub(crate) fn contains_name(&self, name: &str) -> bool {
        self.lists.lock().by_name.contains_key(name)
    }

    /// True if there is another family with the same root: a clone of this one, or one of which
    /// this is a clone, or both are.
    pub(crate) fn has_relative(&self, family: &Keyspace) -> bool {
        let lists = self.lists.lock();
        lists.by_id.values().any(|other| other.root == family.root && other.id != family.id)
    }

    /// All families, by ascending id.
    pub(crate) fn all(&self) -> Vec<Arc<Keyspace>> {
        self.lists.lock().by_id.values().cloned().collect()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::options::FamilyOptions;

    #[test]
    fn families_are_found_by_the_id_and_the_name_they_have_now() {
        let families = Families::default();
        let named = |id: FamilyId, name: &str| {
            Arc::new(Keyspace::new(id, name, FamilyOptions::default(), 1, Arc::default()))
        };
        let id_of = |name: &str| families.by_name(name).map(|family| family.id).ok();
        let ids = || families.all().iter().map(|family| family.id).collect::<Vec<_>>();
        for (id, name) in [(7, "seven"), (2, "two"), (5, "five")] {
            assert!(!families.contains_name(name) && families.by_id(id).is_none());
            families.insert(named(id, name));
            assert!(families.contains_name(name));
            assert_eq!((id_of(name), families.by_id(id).unwrap().id), (Some(id), id));
        }
        assert_eq!(ids(), [2, 5, 7]);

        families.rename(5, "fifth");
        assert_eq!((id_of("five"), id_of("fifth")), (None, Some(5)));
        assert!(!families.contains_name("five") && families.contains_name("fifth"));
        assert_eq!(&*families.by_id(5).unwrap().name(), "fifth");
        families.rename(99, "none");
        assert!(!families.contains_name("none"));
        let unknown = families.by_name("five").err().unwrap();
        assert!(matches!(unknown.kind(), ErrorKind::UnknownFamily { name, .. } if name == "five"));

        families.remove(7);
        families.remove(99);
        assert_eq!((ids(), id_of("seven")), (vec![2, 5], None));
        assert!(!families.contains_name("seven") && families.by_id(7).is_none());

        // Names go round in one step, and an id may be of another family then.
        let renamed = [(2, "fifth"), (5, "two")]
            .map(|(id, name)| (families.by_id(id).unwrap(), Arc::from(name)));
        assert!(families.replace_all(renamed.into_iter()).is_empty());
        assert_eq!((id_of("two"), id_of("fifth"), ids()), (Some(5), Some(2), vec![2, 5]));
        let anew = [(families.by_id(2).unwrap(), "two".into()), (named(5, "five"), "five".into())];
        let gone = families.replace_all(anew.into_iter());
        assert_eq!((gone.len(), id_of("five"), id_of("fifth")), (1, Some(5), None));
        assert!(!Arc::ptr_eq(&gone[0], &families.by_id(5).unwrap()));

        // The name stays taken until the drop is confirmed.
        families.by_id(2).unwrap().mark_dropped(50);
        assert_eq!((id_of("two"), ids()), (None, vec![2, 5]));
        assert!(families.contains_name("two") && families.by_id(2).is_some());
    }
}
