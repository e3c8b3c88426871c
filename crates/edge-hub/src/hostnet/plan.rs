//! Decides what to change on the node. Pure: what is there and what the journal says in, operations out.

use std::path::PathBuf;

use super::{
    LOOPBACK_CONTENT, LOOPBACK_FILE, SET_ASIDE_SUFFIX,
    conf_dir::{ConfDir, Entry},
    disk::{self, Disk},
    journal::{Journal, Step},
};

/// What is there stands in the way.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A folder has the name of the loopback configuration.
    #[error("{} is a folder, where the loopback configuration has to be; remove it", .0.display())]
    Folder(PathBuf),
    /// The journal is about another folder.
    #[error(
        "host-network mode was enabled for {}, not for {}; run `edge-hub hostnet disable --cni-conf-dir {}` first",
        enabled.display(), asked.display(), enabled.display()
    )]
    OtherFolder {
        /// The folder in the journal.
        enabled: PathBuf,
        /// The folder asked for.
        asked: PathBuf,
    },
}

/// One operation, in the order in which they are applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    CreateFolder(PathBuf),
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Write {
        path: PathBuf,
        before: Option<String>,
        content: String,
    },
    Remove {
        path: PathBuf,
        content: String,
    },
    RemoveFolder(PathBuf),
    /// Something that an interrupted write left.
    Sweep(PathBuf),
}

impl Operation {
    /// Carries it out.
    pub(super) fn apply(&self, disk: &mut dyn Disk) -> Result<(), disk::Error> {
        match self {
            Self::CreateFolder(path) => disk::create_dir(disk, path, 0o755),
            Self::Rename { from, to } => disk::rename(disk, from, to),
            Self::Write { path, before: _, content } => {
                disk::write_atomically(disk, path, content.as_bytes(), 0o644)
            }
            Self::Remove { path, content: _ } | Self::Sweep(path) => disk::remove_file(disk, path),
            Self::RemoveFolder(path) => disk::remove_empty_dir(disk, path),
        }
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The journal to be written first, or, if it is empty, removed last.
    pub(super) journal: Journal,
    pub(super) operations: Vec<Operation>,
    /// What a person should know.
    pub(super) notes: Vec<String>,
}

/// The folder as it will be, and how it gets there.
struct Draft {
    folder: ConfDir,
    operations: Vec<Operation>,
}

/// What `enable` has to do: whatever the journal says and is not done, and whatever is missing beyond that.
///
/// The loopback comes before the others go, so that the container runtime always finds some network.
pub(super) fn enable(folder: &ConfDir, journal: &Journal) -> Result<Plan, Error> {
    same_folder(folder, journal)?;
    if folder.entries.get(LOOPBACK_FILE) == Some(&Entry::Folder) {
        return Err(Error::Folder(folder.path.join(LOOPBACK_FILE)));
    }
    let mut steps = journal.steps.clone();
    let mut draft = Draft { folder: folder.clone(), operations: Vec::new() };
    draft.sweep();

    for path in folder.missing.clone() {
        push_new(&mut steps, Step::CreateFolder { path: path.clone() });
        draft.operations.push(Operation::CreateFolder(path));
    }
    // Someone else's loopback configuration goes aside like any other; the same content is taken as it is.
    if draft.folder.entries.contains_key(LOOPBACK_FILE)
        && draft.folder.loopback() != Some(LOOPBACK_CONTENT)
        && !written_by_us(&draft.folder, journal)
    {
        draft.set_aside(LOOPBACK_FILE, &mut steps);
    }
    if draft.folder.loopback() != Some(LOOPBACK_CONTENT) {
        let path = draft.folder.path.join(LOOPBACK_FILE);
        push_new(&mut steps, Step::Write { path: path.clone(), content: LOOPBACK_CONTENT.to_owned() });
        let before = draft.folder.loopback().map(ToOwned::to_owned);
        draft.operations.push(Operation::Write { path, before, content: LOOPBACK_CONTENT.to_owned() });
    }
    let others: Vec<_> = folder.active().filter(|name| *name != LOOPBACK_FILE).cloned().collect();
    for name in others {
        draft.set_aside(&name, &mut steps);
    }
    Ok(Plan { journal: Journal { steps }, operations: draft.operations, notes: Vec::new() })
}

/// What `disable` has to do: the journal backwards. What others did in the meantime is left alone and noted.
pub(super) fn disable(folder: &ConfDir, journal: &Journal) -> Result<Plan, Error> {
    same_folder(folder, journal)?;
    let mut draft = Draft { folder: folder.clone(), operations: Vec::new() };
    let mut notes = Vec::new();
    draft.sweep();
    for step in journal.steps.iter().rev() {
        match step {
            Step::SetAside { folder: _, from, to } => {
                let has = |name| draft.folder.entries.contains_key(name);
                match (has(from), has(to)) {
                    (false, true) => draft.rename(to, from),
                    (true, true) => notes.push(format!(
                        "{} was written again since; the copy that was set aside stays at {}",
                        folder.path.join(from).display(),
                        folder.path.join(to).display()
                    )),
                    (true, false) => {}
                    (false, false) => notes.push(format!(
                        "{} is gone: somebody removed {}",
                        folder.path.join(from).display(),
                        folder.path.join(to).display()
                    )),
                }
            }
            Step::Write { path, content } => match draft.folder.loopback() {
                Some(found) if found == content => {
                    draft.folder.entries.remove(LOOPBACK_FILE);
                    draft.operations.push(Operation::Remove { path: path.clone(), content: content.clone() });
                }
                // The one that was there before is back already.
                Some(_) if restored(&draft.folder, journal, LOOPBACK_FILE) => {}
                Some(_) => notes.push(format!("{} was changed since and stays", path.display())),
                None => {}
            },
            Step::CreateFolder { path } => {
                if !folder.missing.contains(path) {
                    draft.operations.push(Operation::RemoveFolder(path.clone()));
                }
            }
        }
    }
    if !draft.operations.is_empty() && draft.folder.active().next().is_none() {
        notes.push(format!(
            "no network configuration is left in {}: the node is NotReady until its CNI agent writes one",
            folder.path.display()
        ));
    }
    Ok(Plan { journal: Journal::default(), operations: draft.operations, notes })
}

impl Draft {
    fn sweep(&mut self) {
        self.operations.extend(self.folder.left_over().map(Operation::Sweep));
    }

    /// Gives `name` the name that the journal has for it, or else a free one, and adds that to the journal.
    fn set_aside(&mut self, name: &str, steps: &mut Vec<Step>) {
        let recorded = steps.iter().find_map(|step| match step {
            Step::SetAside { folder: _, from, to }
                if from == name && !self.folder.entries.contains_key(to) =>
            {
                Some(to.clone())
            }
            _ => None,
        });
        let to = recorded.unwrap_or_else(|| {
            let names = (1..).map(|n| match n {
                1 => format!("{name}{SET_ASIDE_SUFFIX}"),
                n => format!("{name}{SET_ASIDE_SUFFIX}-{n}"),
            });
            let mut free = names.filter(|to| !self.folder.entries.contains_key(to));
            free.next().expect("there are more numbers than files")
        });
        let step = Step::SetAside { folder: self.folder.path.clone(), from: name.to_owned(), to: to.clone() };
        // Undone backwards: the own loopback configuration has to be gone before another takes its place.
        let write = steps.iter().position(|step| matches!(step, Step::Write { .. }));
        match write.filter(|_| name == LOOPBACK_FILE && !steps.contains(&step)) {
            Some(write) => steps.insert(write, step),
            None => push_new(steps, step),
        }
        self.rename(name, &to);
    }

    fn rename(&mut self, from: &str, to: &str) {
        if let Some(entry) = self.folder.entries.remove(from) {
            // Which content a restored loopback configuration has does not matter to any later step.
            self.folder
                .entries
                .insert(to.to_owned(), if entry == Entry::Folder { entry } else { Entry::Other });
        }
        let path = &self.folder.path;
        self.operations.push(Operation::Rename { from: path.join(from), to: path.join(to) });
    }
}

/// Whether `name` was set aside and its copy is no longer there.
fn restored(folder: &ConfDir, journal: &Journal, name: &str) -> bool {
    journal.steps.iter().any(|step| match step {
        Step::SetAside { folder: _, from, to } => from == name && !folder.entries.contains_key(to),
        Step::CreateFolder { .. } | Step::Write { .. } => false,
    })
}

fn push_new(steps: &mut Vec<Step>, step: Step) {
    if !steps.contains(&step) {
        steps.push(step);
    }
}

/// Whether the loopback configuration is one that an earlier version of this program wrote.
fn written_by_us(folder: &ConfDir, journal: &Journal) -> bool {
    journal.steps.iter().any(
        |step| matches!(step, Step::Write { path: _, content } if folder.loopback() == Some(content.as_str())),
    )
}

fn same_folder(asked: &ConfDir, journal: &Journal) -> Result<(), Error> {
    let enabled = journal.steps.iter().find_map(|step| match step {
        Step::SetAside { folder, .. } => Some(folder.clone()),
        Step::Write { path, content: _ } => path.parent().map(Into::into),
        Step::CreateFolder { path: _ } => None,
    });
    match enabled {
        Some(enabled) if enabled != asked.path => {
            Err(Error::OtherFolder { enabled, asked: asked.path.clone() })
        }
        _ => Ok(()),
    }
}
