//! What a host keeps to itself: that only one Podherd acts on its Podman, and
//! which store it belongs to.

mod known;
mod lock;
mod process;

use std::io;
use std::path::{Path, PathBuf};

pub use known::KnownStore;
pub use lock::HostLock;
pub use process::{has_ended, this_process};

use crate::store::StoreError;

/// Why this host isn't ready to act.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file can't be read or written.
    #[error("{}: can't {doing}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why it didn't work.
        source: io::Error,
    },
    /// The file that remembers the store can't be understood.
    #[error(
        "{}: not what Podherd wrote ({reason}). If --etcd is the store that this host belongs to, \
         start once with --adopt", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another cluster or prefix.
    #[error(
        "this host belongs to {known}, but --etcd and --prefix lead to {found}. Nothing is started \
         or stopped. If the change is meant, start once with --adopt"
    )]
    Foreign {
        /// The store that is remembered.
        known: String,
        /// The one that is there.
        found: String,
    },
    /// The same cluster, but older than it was.
    #[error(
        "the store is at revision {found}, but this host has seen revision {known}: an older backup \
         may have been restored. Nothing is started or stopped. If it is meant, start once with --adopt"
    )]
    Older {
        /// The highest revision that was seen.
        known: i64,
        /// The store's newest one.
        found: i64,
    },
    /// The store can't be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// For `map_err`: which file, and what was tried.
fn file(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> HostError {
    let path = path.to_owned();
    move |source| HostError::File {
        path,
        doing,
        source,
    }
}
