//! Why something isn't allowed.

/// Why something isn't allowed, as a sentence fit for everybody's eyes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// Nobody knows what the node allows.
    #[error("the node's policy can't be read, so nothing is allowed: {why}; mend it on the node")]
    Unreadable {
        /// Why not.
        why: String,
    },
    /// An image.
    #[error("image {image}: {problem}")]
    Image {
        /// The reference.
        image: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A host path.
    #[error("bind {source_path}: {problem}")]
    Bind {
        /// The path on the host.
        source_path: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A device.
    #[error("device {device}: {problem}")]
    Device {
        /// As the manifest has it.
        device: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A privilege.
    #[error("{privilege} isn't allowed by the node's policy: leave it out, or allow it there")]
    Privilege {
        /// Which.
        privilege: String,
    },
}

impl Denial {
    /// In CamelCase.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "PolicyUnreadable",
            Self::Image { .. }
            | Self::Bind { .. }
            | Self::Device { .. }
            | Self::Privilege { .. } => "PolicyDenied",
        }
    }
}
