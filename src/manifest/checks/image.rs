//! Image references: `[registry[:port]/]path[:tag][@sha256:…]`.

use super::routes::is_host_name;
use crate::manifest::error::Report;
use crate::manifest::path::Path;
use crate::manifest::reference::ImageParts;

/// Longest name without tag and digest that registries accept.
const MAX_NAME: usize = 255;
const MAX_TAG: usize = 128;
const SHA256_DIGITS: usize = 64;

pub(super) fn check(image: &str, at: &Path, report: &mut Report<'_>) {
    if image.is_empty() {
        report.at(
            at,
            "name an image, such as registry.example.com/team/app:1.0",
        );
    } else if let Err(problem) = reference(image) {
        report.at(
            at,
            format!("{image:?} is not an image reference: {problem}"),
        );
    }
}

fn reference(image: &str) -> Result<(), &'static str> {
    let parts = ImageParts::of(image);
    let ImageParts { name, tag, digest } = parts;
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return Err("the digest must be sha256: and 64 digits of 0-9 and a-f");
    }
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err("the tag must be 1 to 128 letters, digits, '_', '.' and '-'");
    }
    if name.len() > MAX_NAME {
        return Err("the name is longer than 255 characters");
    }
    let path = match parts.registry() {
        Some((registry, _)) if !is_registry_name(registry) => {
            return Err("the registry must be a host name with an optional port");
        }
        Some((_, path)) => path,
        None => name,
    };
    if path.split('/').all(is_component) {
        Ok(())
    } else {
        Err(
            "each part of the path must be lower-case letters and digits, separated by '.', '_' or '-'",
        )
    }
}

fn is_registry_name(registry: &str) -> bool {
    let (host, port) = match registry.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (registry, None),
    };
    let is_ipv4 = host.parse::<std::net::Ipv4Addr>().is_ok();
    (is_ipv4 || is_host_name(&host.to_ascii_lowercase()))
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

fn is_digest(digest: &str) -> bool {
    digest.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == SHA256_DIGITS
            && hex
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=MAX_TAG).contains(&tag.len())
        && tag
            .bytes()
            .all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
        && tag.bytes().next().is_some_and(word)
}

/// Letters and digits, separated by one `.`, one or two `_`, or any number of `-`.
fn is_component(component: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_separator = |separator: &str| {
        matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|byte| byte == b'-')
    };
    component.starts_with(plain)
        && component.ends_with(plain)
        && component.split(plain).all(is_separator)
}
