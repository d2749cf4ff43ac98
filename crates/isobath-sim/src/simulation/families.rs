//! The rules for families that are created, renamed and dropped. An acknowledged change is there
//! after any crash. A change that never returned is there as a whole or not at all. What was put
//! into a family stays with it under any name.

use super::clones::is_copy;
use std::collections::BTreeMap;

/// A change of the families.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    Create { name: String },
    Rename { from: String, to: String },
    Drop { name: String },
}

/// What was put into a family, if it was acknowledged as surviving power loss.
pub(crate) type Content = Option<Vec<u8>>;

/// The families, by name, except those that always exist.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guests {
    settled: BTreeMap<String, Content>,
    /// A change whose call began and never returned.
    pending: Option<Change>,
}

impl Guests {
    /// The families that a recovery found and the checks accepted.
    pub(crate) fn found(found: BTreeMap<String, Content>) -> Guests {
        Guests { settled: found, pending: None }
    }

    /// The name of a family that must exist, if there is one.
    pub(crate) fn any(&self) -> Option<String> {
        self.settled.keys().next().cloned()
    }

    /// What a family holds, if that is known.
    pub(crate) fn held(&self, name: &str) -> Content {
        self.settled.get(name).cloned().flatten()
    }

    pub(crate) fn begin(&mut self, change: Change) {
        self.pending = Some(change);
    }

    /// The change that was begun has happened.
    pub(crate) fn acknowledge(&mut self) {
        if let Some(change) = self.pending.take() {
            apply(&mut self.settled, change);
        }
    }

    /// The change that was begun has not happened, and will not.
    pub(crate) fn withdraw(&mut self) {
        self.pending = None;
    }

    /// Notes that the contents of a family are durable from now on.
    pub(crate) fn put(&mut self, name: &str, value: &[u8]) {
        if let Some(content) = self.settled.get_mut(name) {
            *content = Some(value.to_vec());
        }
    }

    /// Checks what a recovery found. On a damaged disk the end of the log may be gone, and contents
    /// with it.
    pub(crate) fn check(
        &self,
        found: &BTreeMap<String, Content>,
        is_damaged: bool,
    ) -> Result<(), String> {
        let mut changed = self.settled.clone();
        if let Some(change) = self.pending.clone() {
            apply(&mut changed, change);
        }
        let names = |families: &BTreeMap<String, Content>| -> Vec<String> {
            families.keys().cloned().collect()
        };
        let expected = [&self.settled, &changed];
        let Some(expected) = expected.into_iter().find(|one| one.keys().eq(found.keys())) else {
            return Err(format!(
                "after recovery the families are {:?}; {:?} were settled, {:?} was under way",
                names(found),
                names(&self.settled),
                self.pending
            ));
        };
        let lost = expected.iter().find(|(name, content)| {
            if is_damaged && is_copy(name) {
                // It has many keys, and may have lost some of them.
                return false;
            }
            let there = found.get(*name).and_then(Option::as_ref);
            content.is_some() && there != content.as_ref() && !(is_damaged && there.is_none())
        });
        lost.map_or(Ok(()), |(name, _)| {
            Err(format!("after recovery family {name} does not hold what was synced in it"))
        })
    }
}

fn apply(families: &mut BTreeMap<String, Content>, change: Change) {
    match change {
        Change::Create { name } => drop(families.insert(name, None)),
        Change::Drop { name } => drop(families.remove(&name)),
        Change::Rename { from, to } => {
            if let Some(content) = families.remove(&from) {
                families.insert(to, content);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(families: &[(&str, Option<&str>)]) -> BTreeMap<String, Content> {
        let own = |(name, content): &(&str, Option<&str>)| {
            ((*name).to_owned(), content.map(|content| content.as_bytes().to_vec()))
        };
        families.iter().map(own).collect()
    }

    #[test]
    fn what_was_answered_is_there_and_what_was_not_is_there_wholly_or_not_at_all() {
        let mut guests = Guests::default();
        guests.begin(Change::Create { name: "a".to_owned() });
        guests.acknowledge();
        guests.put("a", b"in a");
        guests.begin(Change::Rename { from: "a".to_owned(), to: "b".to_owned() });
        guests.check(&found(&[("a", Some("in a"))]), false).unwrap();
        guests.check(&found(&[("b", Some("in a"))]), false).unwrap();
        for wrong in
            [&[][..], &[("a", None)], &[("b", Some("else"))], &[("a", Some("in a")), ("b", None)]]
        {
            assert!(guests.check(&found(wrong), false).is_err(), "{wrong:?}");
        }
        guests.check(&found(&[("a", None)]), true).unwrap();
        assert!(guests.check(&found(&[("a", Some("else"))]), true).is_err());
        guests.withdraw();
        assert!(guests.check(&found(&[("b", Some("in a"))]), false).is_err());
    }
}
