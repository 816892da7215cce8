//! What is wanted of an image, and how far a pull of it has come.

use tokio::sync::watch;

use crate::manifest::PullPolicy;
use crate::state::Digest;

/// Which image a reference stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// The one that its tag names, looked for and pulled as the policy says.
    ByPolicy(PullPolicy),
    /// Exactly the one with this digest, pulled where it isn't present.
    Exactly(&'a Digest),
    /// Exactly the one with this digest, if it is present; nothing is pulled.
    Present(&'a Digest),
}

/// How far a pull has come: what was read of the layers whose size is known. Small
/// layers are pulled before anybody counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PullProgress {
    /// Bytes read.
    pub bytes: u64,
    /// Bytes there are.
    pub total: u64,
}

/// Where a pull tells how it goes. What is never told was never pulled: a registry
/// that was only asked whether a tag moved is no pull.
#[derive(Debug)]
pub struct PullReport(watch::Sender<Option<PullProgress>>);

impl PullReport {
    /// A report, and where it is read.
    pub fn new() -> (Self, watch::Receiver<Option<PullProgress>>) {
        let (sender, receiver) = watch::channel(None);
        (Self(sender), receiver)
    }

    /// A report that nobody reads.
    pub fn silent() -> Self {
        Self::new().0
    }

    /// A layer is being pulled, and so much of all is here.
    pub fn pulling(&self, progress: PullProgress) {
        self.0.send_if_modified(|told| {
            let news = *told != Some(progress);
            *told = Some(progress);
            news
        });
    }
}
