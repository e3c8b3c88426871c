//! `edge-hub cache`: what is on this node's disk, whether the hub runs or not.
//!
//! ```text
//!  --root-dir ─► untouched (a disk that takes no change) ─► object store ─► ls, get, verify
//! ```
//! To open a store repairs it, and a running hub holds its lock: so it is opened on a disk that changes nothing, and what is there stays as
//! it is, however full the disk is and if it can only be read. Whoever may not read the folder learns nothing; there is no way in over a socket.

mod contents;
mod redact;
mod untouched;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use daemon::exit;
use http::{Method, Uri};
use kube_wire::{
    object::{Encoding, Object},
    request::{ApiPath, RequestInfo},
    resource::GroupVersionResource,
    transcode,
};
use object_store::{Restored, Stored};

pub use self::contents::ReadError;
pub(crate) use self::contents::remove_copies;

use self::contents::Contents;
use crate::{
    run::storage_key::{self, StorageKeyError},
    status::{columns, resource_name},
};

/// Arguments of `cache`.
#[derive(Clone, Debug, clap::Args)]
pub struct CacheCommandArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CacheCommand,

    /// The hub's folder, as it was started with; its owner may read it.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/edge-hub", global = true)]
    pub root_dir: PathBuf,

    /// File with the key of what is encrypted there, if the hub was started with one.
    #[arg(long, value_name = "FILE", global = true)]
    pub storage_key_file: Option<PathBuf>,
}

/// What can be seen of the cache.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum CacheCommand {
    /// List what is held: one line a subscription.
    Ls,
    /// Print one object as JSON: of several copies the newest. Whose that is goes to the standard error.
    Get(GetArgs),
    /// Read every file, check every frame, open what is sealed and decode every object; exit code 1 if something is damaged or of an earlier state.
    ///
    /// Nothing is repaired: the hub does that when it starts, and fetches anew what was damaged. A file that ends early, as after a
    /// loss of power, is read up to there, named and no damage, nor is a list that was being fetched when the hub ended; one whose file was cut since looks
    /// the same. One in which records follow what does not read shows an earlier state, and is counted apart: damage leaves that, and a loss of power may.
    Verify,
}

/// Arguments of `cache get`.
#[derive(Clone, Debug, clap::Args)]
pub struct GetArgs {
    /// Resource, as `edge-hub cache ls` prints it: services, endpointslices.discovery.k8s.io.
    pub resource: String,

    /// Name of the object, with its namespace: kube-system/kube-dns.
    #[arg(value_name = "[NAMESPACE/]NAME")]
    pub key: String,

    /// Print the values of Secrets, which are left out otherwise.
    #[arg(long)]
    pub show_secrets: bool,
}

/// Why nothing can be shown.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The store cannot be read.
    #[error("--root-dir: {0}")]
    Read(#[from] ReadError),
    /// The key that is given cannot be used.
    #[error("--storage-key-file: {0}")]
    Key(#[from] StorageKeyError),
    /// There is no such object.
    #[error(
        "no {resource} {key:?} is held: `edge-hub cache ls` lists what is; write resources as it does (endpointslices.discovery.k8s.io), and NAMESPACE/NAME \
         of what has a namespace"
    )]
    NotHeld {
        /// The resource that was asked for.
        resource: String,
        /// The object that was asked for.
        key: String,
    },
    /// The object's bytes are not what they should be.
    #[error("{key:?} cannot be shown as JSON: {problem}; `edge-hub cache verify` says more")]
    Unreadable {
        /// Which object.
        key: String,
        /// Why.
        problem: String,
    },
    /// It cannot be printed.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

/// Shows what was asked for, and says beside it, in `err`, what is no part of that.
pub fn run(
    args: &CacheCommandArgs,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<ExitCode, InspectError> {
    let given = args.storage_key_file.as_deref().map(storage_key::read).transpose()?;
    let contents = contents::read(&args.root_dir, given)?;
    if !contents.has_key {
        let root = args.root_dir.display();
        writeln!(
            err,
            "there is no key in {root}, and what is encrypted is not read: give the hub's --storage-key-file here, too"
        )?;
    }
    match &args.command {
        CacheCommand::Ls => list(&contents, out)?,
        CacheCommand::Get(wanted) => get(&contents, wanted, out, err)?,
        CacheCommand::Verify => return verify(&contents, &args.root_dir, out),
    }
    Ok(ExitCode::SUCCESS)
}

/// Owner and resource of a subscription, from its name on disk: `node /api/v1/services?labelSelector=…`.
fn named(name: &str) -> (&str, &str, Option<GroupVersionResource>) {
    let (owner, path) = name.rsplit_once(' ').unwrap_or(("", name));
    let info = path.parse::<Uri>().ok().map(|uri| RequestInfo::parse(&Method::GET, &uri));
    let resource = info.and_then(|info| match info.path {
        ApiPath::Resource(path) => Some(path.resource),
        ApiPath::NonResource(_) => None,
    });
    (owner, path, resource)
}

fn list(contents: &Contents, out: &mut dyn Write) -> io::Result<()> {
    let head = ["RESOURCE", "OWNER", "OBJECTS", "VERSION", "BYTES", "SEALED", "PATH"].map(str::to_owned);
    let row = |restored: &Restored| {
        let (owner, path, resource) = named(&restored.subscription.0);
        [
            resource.as_ref().map_or_else(|| "-".to_owned(), resource_name),
            owner.to_owned(),
            restored.objects.len().to_string(),
            restored.version.to_string(),
            restored.objects.iter().map(|object| object.body.len()).sum::<usize>().to_string(),
            if restored.sealed { "yes" } else { "no" }.to_owned(),
            path.to_owned(),
        ]
    };
    let rows: Vec<[String; 7]> = std::iter::once(head).chain(contents.restored.iter().map(row)).collect();
    columns(&rows, out)?;
    contents.problems.iter().try_for_each(|problem| writeln!(out, "damaged: {problem}"))
}

fn get(
    contents: &Contents,
    wanted: &GetArgs,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(), InspectError> {
    let GetArgs { resource: name, key, show_secrets } = wanted;
    let copies = contents.restored.iter().filter_map(|restored| {
        let (_, _, resource) = named(&restored.subscription.0);
        let resource = resource.filter(|resource| resource_name(resource) == *name)?;
        let object = restored.objects.iter().find(|object| object.key == key.as_bytes())?;
        Some((&restored.subscription, resource, object))
    });
    // Several may hold it, and one of them may have been read long ago. Of equal ones the first by its name.
    let newest = copies.rev().max_by_key(|(_, _, object)| object.version);
    let (subscription, resource, object) =
        newest.ok_or_else(|| InspectError::NotHeld { resource: name.clone(), key: key.clone() })?;
    let unreadable = |problem: String| InspectError::Unreadable { key: key.clone(), problem };
    let text = match encoding(object) {
        Encoding::Json => object.body.to_vec(),
        Encoding::Protobuf => transcode::to_json(&resource, &object.body, true)
            .map_err(|error| unreadable(error.to_string()))?,
    };
    let mut value = serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
    if !show_secrets && resource.group.is_empty() && &*resource.resource == "secrets" {
        redact::secret(&mut value);
    }
    writeln!(err, "from {subscription}, at version {}", object.version)?;
    Ok(writeln!(out, "{value:#}")?)
}

fn verify(contents: &Contents, root: &Path, out: &mut dyn Write) -> Result<ExitCode, InspectError> {
    let mut damaged: Vec<String> = contents.problems.clone();
    let mut objects = 0;
    for restored in &contents.restored {
        for object in &restored.objects {
            objects += 1;
            if let Err(problem) = decode(object) {
                damaged.push(format!("{}: {}: {problem}", restored.subscription, object.key.escape_ascii()));
            }
        }
    }
    let checked = contents.blobs.check().map_err(ReadError::from)?;
    damaged.extend(checked.problems.iter().map(|(name, problem)| {
        let problem = document_problem(problem);
        name.as_ref().map_or_else(|| problem.clone(), |name| format!("{name}: {problem}"))
    }));
    for problem in &damaged {
        writeln!(out, "damaged: {problem}")?;
    }
    for earlier in &contents.earlier {
        writeln!(out, "an earlier state: {earlier}")?;
    }
    contents.notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
    let count = contents.restored.len();
    let earlier = match contents.earlier.len() {
        0 => String::new(),
        count => format!(", {count} of an earlier state"),
    };
    writeln!(
        out,
        "{}: {count} subscriptions with {objects} objects and {} documents read, {} damaged{earlier}",
        root.display(),
        checked.count,
        damaged.len()
    )?;
    let is_whole = damaged.is_empty() && contents.earlier.is_empty();
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(exit::CHECK_FAILED) })
}

/// What is wrong with a document, and what becomes of it: the store knows no hub that fetches it.
fn document_problem(problem: &object_store::Error) -> String {
    match problem {
        object_store::Error::Damaged { path } => {
            format!(
                "{} is damaged: the hub fetches or writes it anew by itself once there is a link",
                path.display()
            )
        }
        problem => problem.to_string(),
    }
}

/// JSON begins with a brace, which no message does.
fn encoding(object: &Stored) -> Encoding {
    if object.body.first() == Some(&b'{') { Encoding::Json } else { Encoding::Protobuf }
}

fn decode(object: &Stored) -> Result<(), String> {
    let decoded = match encoding(object) {
        Encoding::Json => Object::from_json(object.body.clone()),
        Encoding::Protobuf => Object::from_protobuf(object.body.clone()),
    };
    let decoded = decoded.map_err(|error| error.to_string())?;
    if decoded.key().as_str().as_bytes() == object.key {
        Ok(())
    } else {
        Err(format!("it is {} by its own word", decoded.key()))
    }
}

#[cfg(test)]
mod tests;
