//! Images: what is local, what has to be pulled, and why a pull failed.

use http::Method;
use http_body_util::BodyExt;
use serde::Deserialize;

use super::super::{Image, RuntimeError};
use super::fault::{Fault, unreadable};
use super::socket::encoded;
use super::{Podman, bounded};
use crate::manifest::PullPolicy;
use crate::state::Digest;

/// Longest line of a pull's report.
const LINE: usize = 1024 * 1024;

impl Podman {
    /// Looks for the image under the policy, and pulls it where needed.
    pub(super) async fn image_by_policy(
        &self,
        reference: &str,
        policy: PullPolicy,
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
                self.pull(reference, "always").await?;
            }
            // Falls back to a local image when the registry can't be reached.
            PullPolicy::IfTagChanged => self.pull(reference, "newer").await?,
        }
        self.pulled_image(reference).await
    }

    /// Looks for the image with this digest, and pulls it where needed.
    pub(super) async fn image_by_digest(
        &self,
        reference: &str,
        digest: &Digest,
    ) -> Result<Image, RuntimeError> {
        check(reference)?;
        let pinned = format!("{}@{digest}", repository(reference));
        if let Some(found) = self.local_image_of(&pinned, digest).await? {
            return Ok(found);
        }
        if is_local_only(reference) {
            return Err(RuntimeError::ImageAbsent { image: pinned });
        }
        self.pull(&pinned, "always").await?;
        let image = self.pulled_image(&pinned).await?;
        Ok(Image {
            digest: digest.clone(),
            ..image
        })
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
        Ok(found.map(|image| Image {
            digest: digest.clone(),
            ..image
        }))
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
        let volumes = inspected.config.and_then(|config| config.volumes);
        let mut volumes: Vec<_> = volumes.unwrap_or_default().into_keys().collect();
        volumes.sort();
        let test = inspected.healthcheck.and_then(|check| check.test);
        let test = test.as_deref().and_then(<[String]>::first);
        Ok(Some(Image {
            id,
            digest,
            volumes,
            // An image may take back the one of its base with NONE.
            healthcheck: test.is_some_and(|kind| kind != "NONE"),
        }))
    }

    /// Pulls; the answer is 200 whatever comes of it, and its report tells.
    async fn pull(&self, reference: &str, policy: &str) -> Result<(), RuntimeError> {
        let path = format!(
            "/images/pull?reference={}&policy={policy}",
            encoded(reference)
        );
        let report = bounded("pull", self.deadlines.pull, async {
            let mut body = self.socket.stream(Method::POST, &path).await?;
            let mut report = Report::default();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| Fault::Lost(error.to_string()))?;
                if let Ok(data) = frame.into_data() {
                    report.read(&data);
                }
            }
            report.finish();
            Ok(report)
        })
        .await?;
        let error = match report {
            Ok(Report {
                error: Some(error), ..
            }) => error,
            Ok(Report { done: true, .. }) => return Ok(()),
            Ok(_) => "the report of the pull was cut off".to_owned(),
            Err(Fault::Said { message, .. }) => message,
            Err(fault) => return Err(fault.of_call("pull")),
        };
        Err(pull_error(reference, &error))
    }
}

/// What a pull told so far.
#[derive(Default)]
struct Report {
    line: Vec<u8>,
    error: Option<String>,
    done: bool,
}

#[derive(Deserialize)]
struct ReportLine {
    error: Option<String>,
    id: Option<String>,
}

impl Report {
    fn read(&mut self, data: &[u8]) {
        for byte in data {
            match byte {
                b'\n' => self.finish(),
                byte if self.line.len() < LINE => self.line.push(*byte),
                _ => {}
            }
        }
    }

    fn finish(&mut self) {
        if let Ok(line) = serde_json::from_slice::<ReportLine>(&self.line) {
            self.error = self.error.take().or(line.error.filter(|it| !it.is_empty()));
            self.done |= line.id.is_some_and(|id| !id.is_empty());
        }
        self.line.clear();
    }
}

/// Whether the image can only come from this host.
fn is_local_only(reference: &str) -> bool {
    reference.starts_with("localhost/")
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
    let mine = |digest: &&str| {
        let (name, _) = digest.split_once('@').unwrap_or_default();
        name == repository(reference)
    };
    let known: Vec<_> = all.iter().map(String::as_str).filter(mine).collect();
    let main_known = main
        .as_deref()
        .is_some_and(|main| known.is_empty() || known.iter().any(|digest| digest.ends_with(main)));
    if main_known {
        return main.map(Digest::new);
    }
    let (_, digest) = known.first()?.split_once('@')?;
    Some(Digest::new(digest))
}

/// Tells a sure answer of the registry from a failure that may pass.
pub(super) fn pull_error(reference: &str, error: &str) -> RuntimeError {
    let image = reference.to_owned();
    // The cause comes after the image's name, which may itself read like one.
    let (_, cause) = error
        .rsplit_once(repository(reference))
        .unwrap_or(("", error));
    let cause = Fault::said(500, cause);
    let unknown = [
        "manifest unknown",
        "name unknown",
        "repository name not known",
        "statuscode: 404",
        "404 (not found)",
        "invalid reference format",
        "repository name must be",
    ];
    let denied = [
        "unauthorized",
        "authentication required",
        "statuscode: 401",
        "statuscode: 403",
    ];
    let refuses = cause.says(&denied) || cause.says(&["denied"]) && !cause.says(&["permission"]);
    if cause.says(&["image not known"]) {
        RuntimeError::ImageAbsent { image }
    } else if cause.says(&unknown) {
        RuntimeError::ImageUnknown { image }
    } else if refuses {
        RuntimeError::ImageDenied { image }
    } else {
        let (Fault::Said { message, .. } | Fault::Lost(message)) = Fault::said(500, error);
        RuntimeError::PullFailed { image, message }
    }
}
