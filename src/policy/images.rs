//! Which images may be used.

use serde::Deserialize;

use super::Denial;
use crate::manifest::ImageParts;

/// Which images may be used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Images {
    /// Where they may come from; from everywhere when absent.
    allowed: Option<Vec<Origin>>,
    /// Whether manifests have to name images by their digest.
    require_digest: bool,
}

/// A registry with an optional path: `registry.example.com:5000/team`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Origin {
    registry: String,
    path: Vec<String>,
}

impl Images {
    /// Whether the image may be used as it is named.
    pub(super) fn permit(&self, image: &str) -> Result<(), Denial> {
        self.permit_registry(image)?;
        if self.require_digest && ImageParts::of(image).digest.is_none() {
            return Err(denied(
                image,
                "the node's policy wants a digest: add @sha256:… to it",
            ));
        }
        Ok(())
    }

    /// Whether the image may come from where it comes from.
    pub(super) fn permit_registry(&self, image: &str) -> Result<(), Denial> {
        let Some(allowed) = &self.allowed else {
            return Ok(());
        };
        let Some(origin) = Origin::of(image) else {
            return Err(denied(
                image,
                "the node's policy allows some registries only: write the image's registry out, \
                 as in docker.io/library/…",
            ));
        };
        if allowed.iter().any(|allowed| origin.is_within(allowed)) {
            return Ok(());
        }
        Err(denied(
            image,
            "its registry isn't allowed by the node's policy: use an allowed one, or add it to \
             images.allowed there",
        ))
    }
}

fn denied(image: &str, problem: &str) -> Denial {
    Denial::Image {
        image: image.to_owned(),
        problem: problem.to_owned(),
    }
}

impl Origin {
    /// Where an image comes from; `None` when its name doesn't say.
    fn of(image: &str) -> Option<Self> {
        let (registry, path) = ImageParts::of(image).registry()?;
        let registry = registry.to_ascii_lowercase();
        let mut path: Vec<String> = path.split('/').map(str::to_owned).collect();
        // Docker's short form, as Podman reads it.
        if registry == "docker.io" && path.len() == 1 {
            path.insert(0, "library".to_owned());
        }
        Some(Self { registry, path })
    }

    fn is_within(&self, allowed: &Self) -> bool {
        self.registry == allowed.registry && self.path.starts_with(&allowed.path)
    }
}

impl TryFrom<String> for Origin {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (registry, path) = text.split_once('/').unwrap_or((&text, ""));
        let registry_only = format!("{registry}/");
        let is_registry = ImageParts::of(&registry_only).registry().is_some();
        let path: Vec<String> = match path {
            "" if !text.ends_with('/') => Vec::new(),
            path => path.split('/').map(str::to_owned).collect(),
        };
        let is_part = |part: &String| {
            !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || ":@*".contains(c))
        };
        let plain = !registry.contains(|c: char| c.is_whitespace() || "@*".contains(c))
            && !registry.starts_with(':');
        if is_registry && plain && path.iter().all(is_part) {
            return Ok(Self {
                registry: registry.to_ascii_lowercase(),
                path,
            });
        }
        Err(format!(
            "{text:?} is no registry: write registry.example.com, localhost or \
             registry.example.com:5000/team, without scheme, tag and *"
        ))
    }
}
