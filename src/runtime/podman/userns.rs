//! Whether Podman can find user IDs for `userns: auto`. It says so only at the create,
//! and then not why; by then the old generation may be gone.

use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

use super::super::RuntimeError;
use super::Podman;

/// Whose IDs root's Podman shares out.
const OWNER: &str = "containers";

impl Podman {
    /// Looks into the files that the service itself sees. Where they can't be read, or
    /// IDs come from elsewhere, nothing is said: then the create tells.
    pub(super) async fn look_for_user_ids(&self) -> Result<(), RuntimeError> {
        let Some(root) = self.service_root().await else {
            return Ok(());
        };
        let read = |name: &str| std::fs::read_to_string(root.join(name));
        let mentions = |name: &str, word: &str| read(name).is_ok_and(|text| text.contains(word));
        if mentions("etc/nsswitch.conf", "subid:")
            || mentions("etc/containers/storage.conf", "\nroot-auto-userns-user")
        {
            return Ok(());
        }
        for name in ["etc/subuid", "etc/subgid"] {
            if read(name).is_ok_and(|ranges| !has_range(&ranges, OWNER)) {
                return Err(RuntimeError::NoUserIds);
            }
        }
        Ok(())
    }

    /// The root directory of root's Podman service, or of what listens for it; `None`
    /// for a rootless one, which takes its user's own IDs, and where it can't be told.
    async fn service_root(&self) -> Option<PathBuf> {
        let stream = UnixStream::connect(self.socket.path()).await.ok()?;
        let peer = stream.peer_cred().ok()?;
        let process = peer.pid().filter(|pid| *pid > 0 && peer.uid() == 0)?;
        Some(Path::new("/proc").join(process.to_string()).join("root"))
    }
}

/// Whether `owner:START:COUNT` is one of the lines.
pub(super) fn has_range(ranges: &str, owner: &str) -> bool {
    ranges.lines().any(|line| {
        line.split_once(':')
            .is_some_and(|(name, range)| name.trim() == owner && range.contains(':'))
    })
}
