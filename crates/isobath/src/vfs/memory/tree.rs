//! Directories: the present names, the names that a power cut would leave, and the changes between
//! the two.

use super::Steps;
use super::file::File;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Component, Path};
use std::sync::Arc;

/// Identifies a directory in its tree. Ids are not reused.
pub(super) type DirId = usize;

const ROOT: DirId = 0;

/// What a name refers to.
#[derive(Clone)]
pub(super) enum Node {
    File(Arc<File>),
    Dir(DirId),
}

/// A change to the names of one directory that is not synced yet.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) step: u64,
    /// The name that was removed.
    taken: Option<String>,
    /// The name that was added, or that now refers to something else.
    given: Option<(String, Node)>,
    /// False after a failed sync: no later sync covers the change.
    dirty: bool,
}

impl Change {
    pub(super) fn apply(self, names: &mut BTreeMap<String, Node>) {
        if let Some(name) = self.taken {
            names.remove(&name);
        }
        if let Some((name, node)) = self.given {
            names.insert(name, node);
        }
    }

    /// True if both changes concern the same name.
    fn meets(&self, other: &Change) -> bool {
        let names = |change: &Change| {
            let given = change.given.as_ref().map(|(name, _)| name.clone());
            [change.taken.clone(), given]
        };
        let others = names(other);
        names(self).iter().flatten().any(|name| others.iter().flatten().any(|other| other == name))
    }

    /// The name that stands for the change.
    pub(super) fn name(&self) -> &str {
        match (&self.given, &self.taken) {
            (Some((name, _)), _) | (None, Some(name)) => name,
            (None, None) => "",
        }
    }
}

#[derive(Clone, Default)]
pub(super) struct Dir {
    pub(super) names: BTreeMap<String, Node>,
    pub(super) synced: BTreeMap<String, Node>,
    pub(super) unsynced: Vec<Change>,
}

impl Dir {
    fn change(&mut self, steps: &Steps, taken: Option<String>, given: Option<(String, Node)>) {
        let change = Change { step: steps.next(), taken, given, dirty: true };
        change.clone().apply(&mut self.names);
        self.unsynced.push(change);
    }

    fn nodes_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        let changed = self.unsynced.iter_mut().filter_map(|change| change.given.as_mut());
        let changed = changed.map(|(_, node)| node);
        self.names.values_mut().chain(self.synced.values_mut()).chain(changed)
    }
}

/// All directories. The root always exists and is synced.
#[derive(Clone)]
pub(super) struct Tree {
    pub(super) dirs: Vec<Dir>,
}

impl Tree {
    pub(super) fn new() -> Self {
        Tree { dirs: vec![Dir::default()] }
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<Node> {
        let mut node = Node::Dir(ROOT);
        for name in parts(path)? {
            let Node::Dir(dir) = node else { return Err(ErrorKind::NotADirectory.into()) };
            node = self.dirs[dir].names.get(name).cloned().ok_or(ErrorKind::NotFound)?;
        }
        Ok(node)
    }

    pub(super) fn dir(&self, path: &Path) -> io::Result<DirId> {
        match self.find(path)? {
            Node::Dir(dir) => Ok(dir),
            Node::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    /// The directory that contains a path's last name, and that name.
    fn parent<'a>(&self, path: &'a Path) -> io::Result<(DirId, &'a str)> {
        let name = *parts(path)?.last().ok_or(ErrorKind::InvalidInput)?;
        Ok((self.dir(path.parent().unwrap_or(Path::new("")))?, name))
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<Arc<File>> {
        match self.find(path)? {
            Node::File(file) => Ok(file),
            Node::Dir(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    pub(super) fn entries(&self, path: &Path) -> io::Result<&BTreeMap<String, Node>> {
        Ok(&self.dirs[self.dir(path)?].names)
    }

    pub(super) fn create_dir_all(&mut self, path: &Path, steps: &Steps) -> io::Result<()> {
        let mut dir = ROOT;
        for name in parts(path)? {
            dir = match self.dirs[dir].names.get(name) {
                Some(Node::Dir(child)) => *child,
                Some(Node::File(_)) => return Err(ErrorKind::AlreadyExists.into()),
                None => {
                    let child = self.dirs.len();
                    self.dirs.push(Dir::default());
                    let given = (name.to_owned(), Node::Dir(child));
                    self.dirs[dir].change(steps, None, Some(given));
                    child
                }
            };
        }
        Ok(())
    }

    /// Gives `node` a name, which must not exist yet.
    pub(super) fn add(&mut self, path: &Path, node: Node, steps: &Steps) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        if self.dirs[dir].names.contains_key(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.dirs[dir].change(steps, None, Some((name.to_owned(), node)));
        Ok(())
    }

    /// Removes a name.
    pub(super) fn take(&mut self, path: &Path, steps: &Steps) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        if !self.dirs[dir].names.contains_key(name) {
            return Err(ErrorKind::NotFound.into());
        }
        self.dirs[dir].change(steps, Some(name.to_owned()), None);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, steps: &Steps) -> io::Result<()> {
        let node = self.find(from)?;
        let (source, old) = self.parent(from)?;
        let (target, new) = self.parent(to)?;
        match (&node, self.dirs[target].names.get(new)) {
            (Node::File(file), Some(Node::File(replaced))) if Arc::ptr_eq(file, replaced) => {
                return Ok(());
            }
            (Node::Dir(_), _) if parts(to)?.starts_with(&parts(from)?) => {
                return Err(ErrorKind::InvalidInput.into());
            }
            (Node::File(_), Some(Node::Dir(_))) => return Err(ErrorKind::IsADirectory.into()),
            (Node::Dir(_), Some(Node::File(_))) => return Err(ErrorKind::NotADirectory.into()),
            (Node::Dir(_), Some(Node::Dir(replaced))) if !self.dirs[*replaced].names.is_empty() => {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
            _ => {}
        }
        let (taken, given) = (Some(old.to_owned()), Some((new.to_owned(), node)));
        if source == target {
            self.dirs[source].change(steps, taken, given);
        } else {
            self.dirs[target].change(steps, None, given);
            self.dirs[source].change(steps, taken, None);
        }
        Ok(())
    }

    pub(super) fn sync(&mut self, id: DirId) {
        let dir = &mut self.dirs[id];
        let (synced, mut lost): (Vec<_>, Vec<_>) =
            std::mem::take(&mut dir.unsynced).into_iter().partition(|change| change.dirty);
        for change in synced {
            // The disk now has the latest change. A change that was lost earlier must not overwrite
            // it.
            lost.retain(|lost| !lost.meets(&change));
            change.apply(&mut dir.synced);
        }
        dir.unsynced = lost;
    }

    /// The effect of a failed sync.
    pub(super) fn lose_dirt(&mut self, id: DirId) {
        self.dirs[id].unsynced.iter_mut().for_each(|change| change.dirty = false);
    }

    /// A later process does not know that a sync has failed before. Its own sync covers what
    /// exists.
    pub(super) fn forget_failed_syncs(&mut self) {
        let changes = self.dirs.iter_mut().flat_map(|dir| &mut dir.unsynced);
        changes.for_each(|change| change.dirty = true);
    }

    /// Every file that has a name, now or after a power cut; several times if it has several names.
    pub(super) fn files_mut(&mut self) -> impl Iterator<Item = &mut Arc<File>> {
        self.dirs.iter_mut().flat_map(Dir::nodes_mut).filter_map(|node| match node {
            Node::File(file) => Some(file),
            Node::Dir(_) => None,
        })
    }
}

/// The names in a path. All paths start at the root, relative ones too.
fn parts(path: &Path) -> io::Result<Vec<&str>> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => parts.push(name.to_str().ok_or(ErrorKind::InvalidFilename)?),
            Component::ParentDir => drop(parts.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Ok(parts)
}
