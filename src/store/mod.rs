//! The way to the store: etcd, or the in-memory one of the simulation.
//!
//! [`Store`] is as small as what both must agree on: reads at one revision,
//! transactions, watches, leases. Nothing above it knows etcd.

mod authority;
pub mod deadline;
mod etcd;
pub mod limit;
mod local;
mod memory;
mod newest;
mod records;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;

pub use authority::{Authority, AuthorityKeeper, Fence, NotLeading, authority};
pub use etcd::{Certificates, EtcdOptions, EtcdStore};
pub use local::{LocalEtcd, LocalEtcdError, LocalEtcdOptions};
pub use memory::{Backup, MemoryStore};
pub use newest::Newest;
pub use records::{AppRecords, Changes, Kept, Records, RecordsError};

/// A key with its value, as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// Store revision at which the key was created.
    pub create_revision: i64,
    /// Store revision at which the key was last written.
    pub mod_revision: i64,
}

/// What to read: one key, or all below a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Range {
    /// Exactly this key.
    Key(String),
    /// Every key that starts with this, in order of keys.
    Prefix(String),
}

/// Several ranges, read at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The revision at which all of it was true.
    pub revision: i64,
    /// For each range asked for, its entries in order of keys.
    pub ranges: Vec<Vec<Entry>>,
}

/// ID of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// What must hold of a key for a transaction to be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// The key.
    pub key: String,
    /// What must hold.
    pub target: Target,
}

/// What must hold of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// It doesn't exist.
    Absent,
    /// It was created at this revision, and still exists.
    CreateRevision(i64),
    /// It was last written at this revision.
    ModRevision(i64),
}

/// One write of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Puts a value.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
        /// The lease with which the key ends.
        lease: Option<LeaseId>,
    },
    /// Deletes one key.
    Delete(String),
    /// Deletes every key below a prefix.
    DeletePrefix(String),
}

/// All or nothing: the writes are applied when every comparison holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    /// What must hold.
    pub compares: Vec<Compare>,
    /// What is then written.
    pub writes: Vec<Write>,
}

impl Txn {
    /// Adds a comparison.
    #[must_use]
    pub fn when(mut self, key: impl Into<String>, target: Target) -> Self {
        self.compares.push(Compare {
            key: key.into(),
            target,
        });
        self
    }

    /// Adds a put.
    #[must_use]
    pub fn put(mut self, key: impl Into<String>, value: Vec<u8>) -> Self {
        self.writes.push(Write::Put {
            key: key.into(),
            value,
            lease: None,
        });
        self
    }

    /// Adds a put that ends with a lease.
    #[must_use]
    pub fn put_leased(mut self, key: impl Into<String>, value: Vec<u8>, lease: LeaseId) -> Self {
        self.writes.push(Write::Put {
            key: key.into(),
            value,
            lease: Some(lease),
        });
        self
    }

    /// Adds a delete.
    #[must_use]
    pub fn delete(mut self, key: impl Into<String>) -> Self {
        self.writes.push(Write::Delete(key.into()));
        self
    }

    /// Adds a delete of everything below a prefix.
    #[must_use]
    pub fn delete_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.writes.push(Write::DeletePrefix(prefix.into()));
        self
    }
}

/// What became of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Commit {
    /// Applied, at this revision.
    Applied(i64),
    /// Not applied: these keys weren't as compared.
    Refused(Vec<String>),
}

/// One change that a watch saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key has a new value.
    Put(Entry),
    /// The key is gone; `mod_revision` is that of the deletion.
    Delete {
        /// The key.
        key: String,
        /// Revision of the deletion.
        mod_revision: i64,
    },
}

impl Change {
    /// The revision that made it.
    pub fn revision(&self) -> i64 {
        match self {
            Self::Put(entry) => entry.mod_revision,
            Self::Delete { mod_revision, .. } => *mod_revision,
        }
    }
}

/// What a watch delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// The changes of one or more transactions, oldest first.
    Changes {
        /// Everything up to this revision has been delivered.
        revision: i64,
        /// The changes.
        changes: Vec<Change>,
    },
    /// Nothing changed up to this revision: the watch is alive.
    Progress(i64),
}

/// A watch; ends with an error when it can't go on. Then list again.
pub type Watch = BoxStream<'static, Result<WatchEvent, StoreError>>;

/// Why a call to the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It can't be reached, or didn't answer in time. A write may have happened.
    #[error("etcd can't be reached ({call}): {message}; check --etcd and that etcd is healthy")]
    Unavailable {
        /// What was called.
        call: &'static str,
        /// What went wrong.
        message: String,
    },
    /// It refused for want of space; nothing was written.
    #[error("etcd has no space left: compact, defragment, and disarm its NOSPACE alarm")]
    NoSpace,
    /// The watch's start was compacted away; list again.
    #[error("the watch's revision was compacted (up to {compacted})")]
    Compacted {
        /// The oldest revision still there.
        compacted: i64,
    },
    /// The lease has expired or was revoked.
    #[error("the lease has expired")]
    LeaseExpired,
    /// It refused the user or the password.
    #[error("etcd refused access ({call}): check --etcd-user, its password file and its roles")]
    Denied {
        /// What was called.
        call: &'static str,
    },
    /// It refused for another reason; nothing was written.
    #[error("etcd refused {call}: {message}")]
    Refused {
        /// What was called.
        call: &'static str,
        /// What it said.
        message: String,
    },
}

impl StoreError {
    /// Whether a write may have happened in spite of the error. Then look
    /// before you write again.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// A store with revisions, transactions, watches and leases (etcd's model).
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// ID of the cluster, and the newest revision.
    async fn identity(&self) -> Result<(u64, i64), StoreError>;

    /// Reads several ranges at one revision.
    async fn read(&self, ranges: &[Range]) -> Result<View, StoreError>;

    /// Applies a transaction, or says which comparison failed.
    async fn commit(&self, txn: Txn) -> Result<Commit, StoreError>;

    /// Watches a prefix for every change at or after revision `from`. Delivers
    /// at least a [`WatchEvent::Progress`] every few seconds; a silent one is
    /// dead and ends with an error.
    async fn watch(&self, prefix: &str, from: i64) -> Result<Watch, StoreError>;

    /// Grants a lease.
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError>;

    /// Renews a lease once.
    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError>;

    /// Ends a lease and deletes its keys.
    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError>;
}
