//! Credentials for registries, from a file such as `podman login --authfile` writes.
//!
//! Without such a file nothing is sent, and Podman's service looks into its own ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use http::HeaderValue;
use serde::Deserialize;
use serde_json::json;

use super::images::repository;

/// Largest file that is read.
const LARGEST: u64 = 1024 * 1024;

/// A file of credentials. It is read at each pull, so that a `podman login` is noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthFile(PathBuf);

/// Why a file of credentials can't be used. Nothing of what is in it is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the file of credentials {} {problem}; podman login --authfile {} REGISTRY writes one",
    path.display(),
    path.display()
)]
pub struct AuthFileError {
    path: PathBuf,
    problem: String,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
    #[serde(default, rename = "credHelpers")]
    helpers: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Entry {
    /// `user:password` in base64.
    auth: Option<String>,
    #[serde(rename = "identitytoken")]
    identity_token: Option<String>,
}

impl AuthFile {
    /// The file at this path; nothing is read yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The header that carries the credentials for this reference, and no others.
    pub(super) async fn header(
        &self,
        reference: &str,
    ) -> Result<Option<HeaderValue>, AuthFileError> {
        let text = read(&self.0)
            .await
            .map_err(|error| self.problem(format!("can't be read ({error})")))?;
        self.header_from(&text, reference)
    }

    fn header_from(
        &self,
        text: &[u8],
        reference: &str,
    ) -> Result<Option<HeaderValue>, AuthFileError> {
        // The text of a JSON error may quote what is there.
        let content: Content = serde_json::from_slice(text).map_err(|error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            self.problem(format!("isn't of the form {{\"auths\": …}} at {place}"))
        })?;
        let Some(candidates) = scopes(reference) else {
            return Ok(None);
        };
        for scope in candidates {
            let of_scope = |(key, _): &(&String, &Entry)| normalized(key) == scope;
            if let Some((_, entry)) = content.auths.iter().find(of_scope)
                && let Some(login) = self.login(&scope, entry)?
            {
                return Ok(Some(login));
            }
            if content.helpers.keys().any(|key| normalized(key) == scope) {
                return Err(self.problem(format!(
                    "names a credential helper for {scope}, which only Podman itself can ask: \
                     leave --auth-file out"
                )));
            }
        }
        Ok(None)
    }

    fn login(&self, scope: &str, entry: &Entry) -> Result<Option<HeaderValue>, AuthFileError> {
        let unreadable = || self.problem(format!("has an unreadable entry for {scope}"));
        let pair = entry.auth.as_deref().filter(|auth| !auth.is_empty());
        let pair = pair.map(|auth| STANDARD.decode(auth).ok());
        let pair = match pair {
            Some(decoded) => decoded
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .ok_or_else(unreadable)?,
            None if entry.identity_token.is_some() => String::new(),
            None => return Ok(None),
        };
        let (user, password) = pair.split_once(':').unwrap_or((&pair, ""));
        let mut login = json!({"username": user, "password": password});
        if let Some(token) = &entry.identity_token {
            login["identitytoken"] = token.as_str().into();
        }
        // Under its scope: Podman gives it to no mirror and to no other registry.
        let header = URL_SAFE.encode(json!({scope: login}).to_string());
        let mut header = HeaderValue::from_str(&header).map_err(|_| unreadable())?;
        header.set_sensitive(true);
        Ok(Some(header))
    }

    fn problem(&self, problem: String) -> AuthFileError {
        AuthFileError {
            path: self.0.clone(),
            problem,
        }
    }
}

async fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    if tokio::fs::metadata(path).await?.len() > LARGEST {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    tokio::fs::read(path).await
}

/// What credentials may be filed under, most exact first: the repository, the
/// namespaces above it, the registry. `None` for a name without a registry.
fn scopes(reference: &str) -> Option<Vec<String>> {
    if !names_registry(reference) {
        return None;
    }
    let mut scope = repository(reference);
    let mut scopes = vec![normalized(scope)];
    while let Some((above, _)) = scope.rsplit_once('/') {
        scope = above;
        scopes.push(normalized(scope));
    }
    Some(scopes)
}

/// Whether a reference says which registry it is of.
pub(super) fn names_registry(reference: &str) -> bool {
    let Some((first, _)) = reference.split_once('/') else {
        return false;
    };
    first == "localhost" || first.contains(['.', ':'])
}

/// A key as Podman would write it: without what Docker puts around it.
fn normalized(key: &str) -> String {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest);
    let key = key.trim_end_matches('/');
    let key = key
        .strip_suffix("/v1")
        .or_else(|| key.strip_suffix("/v2"))
        .unwrap_or(key);
    match key.split_once('/') {
        Some(("index.docker.io" | "registry-1.docker.io", rest)) => format!("docker.io/{rest}"),
        None if matches!(key, "index.docker.io" | "registry-1.docker.io") => "docker.io".to_owned(),
        _ => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(text: &str, reference: &str) -> Option<String> {
        let header = AuthFile::new("/a").header_from(text.as_bytes(), reference);
        let header = header.unwrap()?;
        assert!(header.is_sensitive());
        Some(String::from_utf8(URL_SAFE.decode(header.as_bytes()).unwrap()).unwrap())
    }

    fn auths(entries: &[(&str, &str)]) -> String {
        let entries: BTreeMap<_, _> = entries
            .iter()
            .map(|(key, login)| (key, json!({"auth": STANDARD.encode(login)})))
            .collect();
        json!({"auths": entries}).to_string()
    }

    #[test]
    fn the_most_exact_credentials_are_sent_and_no_others() {
        let text = auths(&[
            ("r.example.com", "all:1"),
            ("r.example.com/team", "team:a:b"),
            ("https://index.docker.io/v1/", "hub:3"),
        ]);
        for (reference, expected) in [
            (
                "r.example.com/web:1",
                Some(r#"{"r.example.com":{"password":"1","username":"all"}}"#),
            ),
            (
                "r.example.com/team/web@sha256:0",
                Some(r#"{"r.example.com/team":{"password":"a:b","username":"team"}}"#),
            ),
            (
                "docker.io/library/web",
                Some(r#"{"docker.io":{"password":"3","username":"hub"}}"#),
            ),
            ("r.example.com:5000/web:1", None),
            ("web:1", None),
        ] {
            assert_eq!(sent(&text, reference).as_deref(), expected, "{reference}");
        }
    }

    #[test]
    fn an_identity_token_goes_along() {
        let text = r#"{"auths":{"r.io":{"identitytoken":"t"}}}"#;
        let expected = r#"{"r.io":{"identitytoken":"t","password":"","username":""}}"#;
        assert_eq!(sent(text, "r.io/web").as_deref(), Some(expected));
    }

    #[test]
    fn what_is_wrong_with_the_file_is_told_without_what_is_in_it() {
        for text in [
            r#"{"auths": "hunter2"}"#,
            r#"{"auths": {"r.io": {"auth": "hunter2!"}}}"#,
            "hunter2",
        ] {
            let error = AuthFile::new("/a").header_from(text.as_bytes(), "r.io/web");
            let error = error.unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
            assert!(error.contains("podman login --authfile /a"), "{error}");
        }
        let helper = br#"{"auths": {"r.io": {}}, "credHelpers": {"r.io": "pass"}}"#;
        let error = AuthFile::new("/a")
            .header_from(helper, "r.io/web")
            .unwrap_err();
        assert!(error.to_string().contains("credential helper"), "{error}");
    }
}
