//! Images: what is local, and what has to be pulled.

use super::super::{Image, PullReport, RuntimeError};
use super::fault::{Fault, unreadable};
use super::{Podman, bounded};
use crate::manifest::PullPolicy;
use crate::state::Digest;

impl Podman {
    /// Looks for the image under the policy, and pulls it where needed.
    pub(super) async fn image_by_policy(
        &self,
        reference: &str,
        policy: PullPolicy,
        report: &PullReport,
    ) -> Result<Image, RuntimeError> {
        check(reference)?;
        // Built or loaded on this host: no registry has it.
        let policy = if is_local_only(reference) {
            PullPolicy::Never
        } else {
            policy
        };
        if matches!(policy, PullPolicy::Never | PullPolicy::IfNotPresent)
            && let Some(image) = self.local_image(reference).await?
        {
            return Ok(image);
        }
        match policy {
            PullPolicy::Never => {
                return Err(RuntimeError::ImageAbsent {
                    image: reference.to_owned(),
                });
            }
            PullPolicy::Always | PullPolicy::IfNotPresent => {
                self.pull(reference, report).await?;
            }
            PullPolicy::IfTagChanged => {
                if let Err(error) = self.pull(reference, report).await {
                    let local = self.local_image(reference).await?.ok_or(error)?;
                    tracing::warn!(
                        image = reference,
                        "the registry wasn't asked whether the tag moved: the local image is taken"
                    );
                    return Ok(local);
                }
            }
        }
        self.pulled_image(reference).await
    }

    /// Looks for the image with this digest, and pulls it where needed.
    pub(super) async fn image_by_digest(
        &self,
        reference: &str,
        digest: &Digest,
        report: &PullReport,
    ) -> Result<Image, RuntimeError> {
        match self.image_present(reference, digest).await {
            Err(RuntimeError::ImageAbsent { image: pinned }) if !is_local_only(reference) => {
                self.pull(&pinned, report).await?;
                let image = self.pulled_image(&pinned).await?;
                Ok(named_by(digest, image))
            }
            found => found,
        }
    }

    /// Looks for the image with this digest.
    pub(super) async fn image_present(
        &self,
        reference: &str,
        digest: &Digest,
    ) -> Result<Image, RuntimeError> {
        check(reference)?;
        let pinned = format!("{}@{digest}", repository(reference));
        let found = self.local_image_of(&pinned, digest).await?;
        found.ok_or(RuntimeError::ImageAbsent { image: pinned })
    }

    /// A local image that carries this digest, under whatever name.
    async fn local_image_of(
        &self,
        pinned: &str,
        digest: &Digest,
    ) -> Result<Option<Image>, RuntimeError> {
        let mut found = self.local_image(pinned).await?;
        if found.is_none() {
            // Its tag may have moved on, and its name with it.
            let list = bounded("images", self.deadlines.look, async {
                let images = self.api.images();
                images
                    .list(&podman_api::opts::ImageListOpts::default())
                    .await
            })
            .await?
            .map_err(|error| Fault::from(error).of_call("images"))?;
            let carries = |image: &podman_api::models::LibpodImageSummary| {
                let mut digests = image.repo_digests.iter().flatten();
                image.digest.as_deref() == Some(digest.as_str())
                    || digests.any(|it| it.ends_with(&format!("@{digest}")))
            };
            if let Some(id) = list.into_iter().find(carries).and_then(|image| image.id) {
                found = self.local_image(id.trim_start_matches("sha256:")).await?;
            }
        }
        Ok(found.map(|image| named_by(digest, image)))
    }

    async fn pulled_image(&self, reference: &str) -> Result<Image, RuntimeError> {
        self.local_image(reference)
            .await?
            .ok_or_else(|| RuntimeError::PullFailed {
                image: reference.to_owned(),
                message: "it was removed again at once".to_owned(),
            })
    }

    async fn local_image(&self, reference: &str) -> Result<Option<Image>, RuntimeError> {
        let inspected = bounded("inspect image", self.deadlines.look, async {
            self.api.images().get(reference).inspect().await
        })
        .await?;
        let inspected = match inspected.map_err(Fault::from) {
            Ok(inspected) => inspected,
            Err(fault) if fault.is_missing() => return Ok(None),
            Err(fault) => return Err(fault.of_call("inspect image")),
        };
        let digests = inspected.repo_digests.unwrap_or_default();
        let digest = digest_of(reference, inspected.digest, &digests);
        let (Some(id), Some(digest)) = (inspected.id, digest) else {
            return Err(unreadable().of_call("inspect image"));
        };
        let known_as = own_digests(reference, &digests)
            .filter_map(|own| own.split_once('@'))
            .map(|(_, digest)| Digest::new(digest))
            .collect();
        let volumes = inspected.config.and_then(|config| config.volumes);
        let mut volumes: Vec<_> = volumes.unwrap_or_default().into_keys().collect();
        volumes.sort();
        let test = inspected.healthcheck.and_then(|check| check.test);
        let test = test.as_deref().and_then(<[String]>::first);
        Ok(Some(Image {
            id,
            digest,
            known_as,
            volumes,
            // An image may take back the one of its base with NONE.
            healthcheck: test.is_some_and(|kind| kind != "NONE"),
        }))
    }
}

/// The image, called by this one of its digests.
fn named_by(digest: &Digest, mut image: Image) -> Image {
    image.digest = digest.clone();
    if !image.known_as.contains(digest) {
        image.known_as.push(digest.clone());
    }
    image
}

/// Whether the image can only come from this host.
fn is_local_only(reference: &str) -> bool {
    reference.starts_with("localhost/")
}

/// The repository of a reference: no tag, no digest.
pub(super) fn repository(reference: &str) -> &str {
    let name = reference
        .split_once('@')
        .map_or(reference, |(name, _)| name);
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => name,
    }
}

/// Refuses what would mean something else within a path.
fn check(reference: &str) -> Result<(), RuntimeError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@+-[]".contains(&byte);
    let parts = reference.split('/');
    if reference.bytes().all(fits)
        && parts
            .into_iter()
            .all(|part| !matches!(part, "" | "." | ".."))
    {
        Ok(())
    } else {
        Err(RuntimeError::ImageUnknown {
            image: reference.to_owned(),
        })
    }
}

/// The digest to pin: one under which the reference's own repository knows the image.
/// The same image may have come from another registry with another digest.
pub(super) fn digest_of(reference: &str, main: Option<String>, all: &[String]) -> Option<Digest> {
    let main = main.filter(|digest| digest.starts_with("sha256:"));
    let known: Vec<_> = own_digests(reference, all).collect();
    let main_known = main
        .as_deref()
        .is_some_and(|main| known.is_empty() || known.iter().any(|digest| digest.ends_with(main)));
    if main_known {
        return main.map(Digest::new);
    }
    let (_, digest) = known.first()?.split_once('@')?;
    Some(Digest::new(digest))
}

/// The digests of the reference's own repository, each with its name.
fn own_digests<'d>(reference: &str, all: &'d [String]) -> impl Iterator<Item = &'d str> {
    let mine = |digest: &&str| {
        let (name, _) = digest.split_once('@').unwrap_or_default();
        name == repository(reference)
    };
    all.iter().map(String::as_str).filter(mine)
}
