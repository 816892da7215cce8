//! The parts of an image reference: `[registry[:port]/]path[:tag][@sha256:…]`.

/// The parts of a reference, none of them checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageParts<'a> {
    /// Without tag and digest.
    pub name: &'a str,
    /// After the colon.
    pub tag: Option<&'a str>,
    /// After the `@`.
    pub digest: Option<&'a str>,
}

impl<'a> ImageParts<'a> {
    /// Takes a reference apart.
    pub fn of(image: &'a str) -> Self {
        let (rest, digest) = match image.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (image, None),
        };
        // A colon after the last slash is a tag; before it, it is the registry's port.
        let path_start = rest.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match rest[path_start..].find(':') {
            Some(colon) => (
                &rest[..path_start + colon],
                Some(&rest[path_start + colon + 1..]),
            ),
            None => (rest, None),
        };
        Self { name, tag, digest }
    }

    /// The registry and the path there; `None` for a short name, whose registry
    /// the host's configuration chooses.
    pub fn registry(&self) -> Option<(&'a str, &'a str)> {
        let (first, path) = self.name.split_once('/')?;
        // The rule of all container tools for telling a registry from a path's first part.
        let is_registry = first.contains(['.', ':']) || first == "localhost";
        is_registry.then_some((first, path))
    }
}
