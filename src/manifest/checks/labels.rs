//! Labels: `[prefix/]name` keys, and short values that fit on one line.

use std::collections::BTreeMap;

use super::routes::is_host_name;
use crate::manifest::error::Report;
use crate::manifest::path::Path;

const MAX_NAME: usize = 63;
const MAX_VALUE: usize = 256;

pub(super) fn check(labels: &BTreeMap<String, String>, at: &Path, report: &mut Report<'_>) {
    for (key, value) in labels {
        if !is_key(key) {
            let message = "a label's key is 1 to 63 letters, digits, '-', '_' and '.', starting and \
                           ending with a letter or digit, after an optional DNS name and '/'";
            report.at_key(&at.key(key), message);
        } else if key.split(['.', '/']).any(|part| part == "podherd") {
            report.at_key(
                &at.key(key),
                "labels of podherd are its own: choose another key",
            );
        }
        if value.chars().count() > MAX_VALUE || value.contains(char::is_control) {
            let message = "a label's value is at most 256 characters without control characters";
            report.at(&at.key(key), message);
        }
    }
}

fn is_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let alphanumeric = |byte: u8| byte.is_ascii_alphanumeric();
    let bytes = name.as_bytes();
    prefix.is_none_or(is_host_name)
        && (1..=MAX_NAME).contains(&bytes.len())
        && bytes
            .iter()
            .all(|&byte| alphanumeric(byte) || matches!(byte, b'-' | b'_' | b'.'))
        && bytes.first().is_some_and(|&byte| alphanumeric(byte))
        && bytes.last().is_some_and(|&byte| alphanumeric(byte))
}
