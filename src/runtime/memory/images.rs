//! The images of the in-memory runtime: what a registry offers and what is local.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::manifest::PullPolicy;
use crate::state::Digest;

use super::super::{Image, RuntimeError, Wanted};

/// How a container made from an image behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers as soon as it runs, and leaves at once when asked.
    #[default]
    Ready,
    /// Runs, but every probe of it fails (HTTP: 503).
    NeverReady,
    /// Ends with this code as soon as it is started.
    ExitsAtOnce(i32),
    /// Refuses connections for that long after its start.
    SlowReady(Duration),
    /// Only SIGKILL ends it.
    IgnoresTerm,
    /// Leaves that long after it was asked to.
    SlowToLeave(Duration),
    /// Nothing ends it, as a process that hangs in the kernel.
    NeverLeaves,
}

/// An image of the in-memory runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryImage {
    /// Digest of its manifest.
    pub digest: Digest,
    /// Digest of the index that it is of.
    pub index: Option<Digest>,
    /// Paths that it declares as volumes.
    pub volumes: Vec<String>,
    /// What its containers do.
    pub behaves: Behaviour,
    /// What its containers print at each start.
    pub prints: Vec<String>,
    /// Whether it declares a health check.
    pub healthcheck: bool,
}

impl MemoryImage {
    /// An image whose digest follows from `content`, a text of the test's choice.
    pub fn new(content: &str) -> Self {
        Self {
            digest: digest_of(content),
            index: None,
            volumes: Vec::new(),
            behaves: Behaviour::Ready,
            prints: Vec::new(),
            healthcheck: false,
        }
    }

    /// The same with another behaviour.
    #[must_use]
    pub fn behaves(mut self, behaves: Behaviour) -> Self {
        self.behaves = behaves;
        self
    }

    /// The same with a declared volume.
    #[must_use]
    pub fn volume(mut self, path: &str) -> Self {
        self.volumes.push(path.to_owned());
        self
    }

    /// The same with a health check, which passes when the container is ready.
    #[must_use]
    pub fn healthcheck(mut self) -> Self {
        self.healthcheck = true;
        self
    }

    /// The same, printing a line at each start.
    #[must_use]
    pub fn prints(mut self, line: &str) -> Self {
        self.prints.push(line.to_owned());
        self
    }

    pub(super) fn id(&self) -> String {
        self.digest
            .as_str()
            .trim_start_matches("sha256:")
            .to_owned()
    }

    fn shown(&self) -> Image {
        Image {
            id: self.id(),
            digest: self.digest.clone(),
            known_as: self.known_as(),
            volumes: self.volumes.clone(),
            healthcheck: self.healthcheck,
        }
    }

    fn known_as(&self) -> Vec<Digest> {
        let digests = self.index.iter().chain([&self.digest]);
        digests.cloned().collect()
    }
}

/// A digest in the right form that differs for different texts. Not a hash to rely on.
fn digest_of(content: &str) -> Digest {
    // FNV-1a, with another start for each quarter.
    let quarter = |part: u64| {
        let start = 0xcbf2_9ce4_8422_2325_u64.wrapping_add(part);
        content.bytes().fold(start, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    };
    let [a, b, c, d] = [0, 1, 2, 3].map(quarter);
    Digest::new(format!("sha256:{a:016x}{b:016x}{c:016x}{d:016x}"))
}

/// The repository of a reference: no tag, no digest.
fn repository(reference: &str) -> &str {
    let name = reference
        .split_once('@')
        .map_or(reference, |(name, _)| name);
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    }
}

/// Whether the image can only come from this host.
fn is_local_only(reference: &str) -> bool {
    reference.starts_with("localhost/")
}

#[derive(Debug, Default)]
pub(super) struct Images {
    /// By reference: what the tag names now.
    registry: BTreeMap<String, MemoryImage>,
    /// What each repository ever had, for pulls by digest.
    pushed: BTreeMap<(String, Digest), MemoryImage>,
    registry_down: bool,
    denied: BTreeSet<String>,
    /// By reference: what the local tag names.
    tags: BTreeMap<String, Digest>,
    local: BTreeMap<Digest, MemoryImage>,
}

impl Images {
    pub(super) fn push(&mut self, reference: &str, image: MemoryImage) {
        let key = (repository(reference).to_owned(), image.digest.clone());
        self.pushed.insert(key, image.clone());
        self.registry.insert(reference.to_owned(), image);
    }

    pub(super) fn load(&mut self, reference: &str, image: MemoryImage) {
        self.tags.insert(reference.to_owned(), image.digest.clone());
        self.local.insert(image.digest.clone(), image);
    }

    pub(super) fn forget_local(&mut self, reference: &str) {
        if let Some(digest) = self.tags.remove(reference)
            && !self.tags.values().any(|other| *other == digest)
        {
            self.local.remove(&digest);
        }
    }

    pub(super) fn set_registry_down(&mut self, down: bool) {
        self.registry_down = down;
    }

    pub(super) fn deny(&mut self, reference: &str) {
        self.denied.insert(reference.to_owned());
    }

    pub(super) fn by_id(&self, id: &str) -> Option<&MemoryImage> {
        self.local.values().find(|image| image.id() == id)
    }

    fn tagged(&self, reference: &str) -> Option<&MemoryImage> {
        self.local.get(self.tags.get(reference)?)
    }

    fn pull(&mut self, reference: &str) -> Result<Image, RuntimeError> {
        let image = || reference.to_owned();
        if self.registry_down {
            return Err(RuntimeError::PullFailed {
                image: image(),
                message: "the registry can't be reached".to_owned(),
            });
        }
        if self.denied.contains(reference) {
            return Err(RuntimeError::ImageDenied { image: image() });
        }
        let found = match reference.split_once('@') {
            Some((name, digest)) => self
                .pushed
                .get(&(repository(name).to_owned(), Digest::new(digest))),
            None => self.registry.get(reference),
        };
        let found = found
            .cloned()
            .ok_or_else(|| RuntimeError::ImageUnknown { image: image() })?;
        let shown = found.shown();
        self.load(reference, found);
        Ok(shown)
    }

    /// The wanted image, and whether it had to be pulled.
    pub(super) fn obtain(
        &mut self,
        reference: &str,
        wanted: Wanted<'_>,
    ) -> Result<(Image, bool), RuntimeError> {
        match wanted {
            Wanted::ByPolicy(policy) => self.ensure(reference, policy),
            Wanted::Exactly(digest) => self.ensure_pinned(reference, digest),
            Wanted::Present(digest) => self.present(reference, digest).map(|it| (it, false)),
        }
    }

    fn present(&self, reference: &str, digest: &Digest) -> Result<Image, RuntimeError> {
        let local = self.local.get(digest).map(MemoryImage::shown);
        local.ok_or_else(|| RuntimeError::ImageAbsent {
            image: format!("{}@{digest}", repository(reference)),
        })
    }

    fn ensure(
        &mut self,
        reference: &str,
        policy: PullPolicy,
    ) -> Result<(Image, bool), RuntimeError> {
        let local = self.tagged(reference).map(MemoryImage::shown);
        let policy = if is_local_only(reference) {
            PullPolicy::Never
        } else {
            policy
        };
        match (policy, local) {
            (PullPolicy::Never, None) => Err(RuntimeError::ImageAbsent {
                image: reference.to_owned(),
            }),
            (PullPolicy::Never | PullPolicy::IfNotPresent, Some(local)) => Ok((local, false)),
            (PullPolicy::IfTagChanged, Some(local)) => match self.pull(reference) {
                Ok(pulled) => {
                    let changed = pulled != local;
                    Ok((pulled, changed))
                }
                Err(_) => Ok((local, false)),
            },
            (PullPolicy::Always, _) | (_, None) => {
                self.pull(reference).map(|pulled| (pulled, true))
            }
        }
    }

    fn ensure_pinned(
        &mut self,
        reference: &str,
        digest: &Digest,
    ) -> Result<(Image, bool), RuntimeError> {
        match self.present(reference, digest) {
            Err(_) if !is_local_only(reference) => {
                let pinned = format!("{}@{digest}", repository(reference));
                self.pull(&pinned).map(|pulled| (pulled, true))
            }
            local => local.map(|local| (local, false)),
        }
    }
}
