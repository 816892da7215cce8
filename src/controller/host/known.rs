//! The store that this host belongs to.
//!
//! `<state-dir>/store.json` remembers the cluster's ID, the prefix, and the
//! highest revision that was seen. An empty, older or foreign store is thus
//! noticed before anything is compared with it, and stops nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tracing::info;

use super::{HostError, file};
use crate::sabotage::{self, Defect};
use crate::store::Store;

const SCHEMA: u32 = 1;

/// What is in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    schema: u32,
    /// In hexadecimal, as etcd prints it; not every JSON reader holds 64 bits.
    cluster: String,
    prefix: String,
    revision: i64,
}

/// The remembered store. Take the host's lock first: two processes that
/// remember in one file would overwrite each other.
#[derive(Debug)]
pub struct KnownStore {
    path: PathBuf,
    seen: Mutex<Option<Identity>>,
}

impl KnownStore {
    /// Remembers in this folder, which is created where it is missing.
    ///
    /// # Errors
    /// When it can't be created.
    pub fn open(state_dir: &Path) -> Result<Self, HostError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(state_dir)
            .map_err(file(state_dir, "create it"))?;
        Ok(Self {
            path: state_dir.join("store.json"),
            seen: Mutex::new(None),
        })
    }

    /// Makes sure that this is the store the host belongs to, or, on a host that
    /// belongs to none or with `adopt`, makes it so.
    ///
    /// # Errors
    /// When it isn't, when the store can't be asked, or when the file is damaged
    /// or can't be written.
    pub async fn check(
        &self,
        store: &dyn Store,
        prefix: &str,
        adopt: bool,
    ) -> Result<(), HostError> {
        let known = match self.load() {
            Err(HostError::Damaged { .. }) if adopt => None,
            known => known?,
        };
        let (cluster, revision) = store.identity().await?;
        let mut found = Identity {
            schema: SCHEMA,
            cluster: format!("{cluster:x}"),
            prefix: prefix.to_owned(),
            revision,
        };
        match known {
            Some(known) if !adopt => {
                if (&known.cluster, &known.prefix) != (&found.cluster, &found.prefix) {
                    return Err(HostError::Foreign {
                        known: describe(&known),
                        found: describe(&found),
                    });
                }
                if known.revision > revision && !sabotage::has(Defect::OlderStoreAccepted) {
                    return Err(HostError::Older {
                        known: known.revision,
                        found: revision,
                    });
                }
                found.revision = revision;
            }
            _ => info!(
                store = describe(&found),
                revision, "this host now belongs to this store"
            ),
        }
        let mut seen = self.seen();
        self.save(&found)?;
        *seen = Some(found);
        Ok(())
    }

    /// The store has reached this revision. Call it now and then: how fresh the
    /// memory is decides how old a restored backup must be to be noticed.
    ///
    /// # Errors
    /// When the file can't be written. What was remembered before is kept.
    pub fn raise(&self, revision: i64) -> Result<(), HostError> {
        let mut seen = self.seen();
        let Some(known) = &mut *seen else {
            return Ok(());
        };
        if revision <= known.revision {
            return Ok(());
        }
        let newer = Identity {
            revision,
            ..known.clone()
        };
        self.save(&newer)?;
        *known = newer;
        Ok(())
    }

    fn seen(&self) -> MutexGuard<'_, Option<Identity>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self) -> Result<Option<Identity>, HostError> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(file(&self.path, "read it")(error)),
        };
        let damaged = |reason: String| HostError::Damaged {
            path: self.path.clone(),
            reason,
        };
        let known: Identity =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if known.schema > SCHEMA {
            return Err(damaged(format!(
                "schema {}, a newer Podherd's",
                known.schema
            )));
        }
        Ok(Some(known))
    }

    /// Writes the file so that a crash leaves the old one or the new one, whole.
    fn save(&self, identity: &Identity) -> Result<(), HostError> {
        let fresh = self.path.with_extension("json.new");
        let write = || -> io::Result<()> {
            let mut text = serde_json::to_vec_pretty(identity)?;
            text.push(b'\n');
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&fresh)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&fresh, &self.path)?;
            let folder = self.path.parent().unwrap_or(Path::new("."));
            File::open(folder)?.sync_all()
        };
        write().map_err(file(&self.path, "write it"))
    }
}

fn describe(identity: &Identity) -> String {
    format!(
        "etcd cluster {}, prefix {}",
        identity.cluster, identity.prefix
    )
}

#[cfg(test)]
mod tests {
    use crate::store::{MemoryStore, Txn};

    use super::*;

    async fn grow(store: &MemoryStore, writes: usize) {
        for _ in 0..writes {
            store
                .commit(Txn::default().put("/x", Vec::new()))
                .await
                .unwrap();
        }
    }

    async fn check(
        dir: &Path,
        store: &MemoryStore,
        prefix: &str,
        adopt: bool,
    ) -> Result<(), HostError> {
        KnownStore::open(dir)?.check(store, prefix, adopt).await
    }

    #[tokio::test]
    async fn the_same_store_is_recognised_and_another_is_refused_until_adopted() {
        let dir = tempfile::tempdir().unwrap();
        let ours = MemoryStore::with_cluster(0xABC);
        check(dir.path(), &ours, "/podherd", false).await.unwrap();
        grow(&ours, 3).await;
        check(dir.path(), &ours, "/podherd", false).await.unwrap();

        let other = MemoryStore::with_cluster(0xDEF);
        grow(&other, 10).await;
        let error = check(dir.path(), &other, "/podherd", false)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("abc") && error.contains("def") && error.contains("--adopt"),
            "{error}"
        );
        let error = check(dir.path(), &ours, "/elsewhere", false)
            .await
            .unwrap_err();
        assert!(matches!(error, HostError::Foreign { .. }), "{error}");
        // A refusal changes nothing.
        check(dir.path(), &ours, "/podherd", false).await.unwrap();

        check(dir.path(), &other, "/podherd", true).await.unwrap();
        check(dir.path(), &other, "/podherd", false).await.unwrap();
        assert!(check(dir.path(), &ours, "/podherd", false).await.is_err());
    }

    #[tokio::test]
    async fn an_older_state_of_the_same_cluster_is_refused_until_adopted() {
        let dir = tempfile::tempdir().unwrap();
        let store = MemoryStore::new();
        let known = KnownStore::open(dir.path()).unwrap();
        known.check(&store, "/podherd", false).await.unwrap();
        known.raise(100).unwrap();
        known.raise(50).unwrap();
        grow(&store, 50).await;
        let error = check(dir.path(), &store, "/podherd", false)
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                HostError::Older {
                    known: 100,
                    found: 51
                }
            ),
            "{error}"
        );
        check(dir.path(), &store, "/podherd", true).await.unwrap();
        check(dir.path(), &store, "/podherd", false).await.unwrap();
    }

    #[tokio::test]
    async fn a_damaged_file_is_named_and_never_taken_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.json");
        let store = MemoryStore::new();
        for text in ["", "{", "{\"schema\":1}", "[]"] {
            fs::write(&path, text).unwrap();
            let error = check(dir.path(), &store, "/podherd", false)
                .await
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("store.json") && error.contains("--adopt"),
                "{error}"
            );
        }
        check(dir.path(), &store, "/podherd", true).await.unwrap();
        check(dir.path(), &store, "/podherd", false).await.unwrap();
    }

    #[tokio::test]
    async fn what_a_crash_left_half_written_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = MemoryStore::new();
        check(dir.path(), &store, "/podherd", false).await.unwrap();
        fs::write(dir.path().join("store.json.new"), "{\"sch").unwrap();
        check(dir.path(), &store, "/podherd", false).await.unwrap();
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
    }

    #[tokio::test]
    async fn raising_before_the_check_remembers_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let known = KnownStore::open(dir.path()).unwrap();
        known.raise(7).unwrap();
        assert!(!dir.path().join("store.json").exists());
    }
}
