//! What the machine itself says, for defaults.

use std::path::PathBuf;

/// The facts that defaults are made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// The effective user's ID; 0 is root.
    pub uid: u32,
    /// The machine's name.
    pub name: String,
    /// `XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
    /// `XDG_STATE_HOME`.
    pub state_home: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
}

impl Host {
    /// This machine, as this process sees it.
    pub fn here() -> Self {
        let folder = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        // Without a name, `--node` is asked for.
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            uid: rustix::process::geteuid().as_raw(),
            name: name.trim().to_owned(),
            runtime_dir: folder("XDG_RUNTIME_DIR"),
            state_home: folder("XDG_STATE_HOME"),
            home: folder("HOME"),
        }
    }

    /// Whether this process is root.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }
}
