//! How large a document may be, before any of it is believed.

use super::error::Problem;
use super::path::Path;
use super::positions::Place;

/// Largest manifest in bytes; etcd itself refuses a request above 1.5 MiB.
pub const MAX_BYTES: usize = 1024 * 1024;

/// Deepest nesting of maps and lists; the deepest field is at 8.
pub(super) const MAX_DEPTH: usize = 32;

/// What to say about more.
pub(super) const TOO_DEEP: &str = "nested deeper than 32 levels: a manifest never is";

/// Most values in the text.
pub(super) const MAX_NODES: usize = 50_000;

/// What a document may grow to once its aliases are followed, in bytes of memory.
pub(super) const MAX_GROWTH: usize = 16 * MAX_BYTES;

/// What to say about more.
pub(super) const TOO_LARGE: &str = "the document grows too large here: use fewer aliases";

/// What one value costs at least, against [`MAX_GROWTH`].
pub(super) const VALUE_COST: usize = 64;

/// The bytes as a text, if they are small enough and UTF-8.
pub(super) fn text(bytes: &[u8]) -> Result<&str, Problem> {
    if bytes.len() > MAX_BYTES {
        let message = format!(
            "the manifest has {} bytes, more than the {MAX_BYTES} allowed: shorten or split it",
            bytes.len()
        );
        return Err(Problem::new(&Path::root(), Place::START, &message));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let place = Place {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        };
        Problem::new(
            &Path::root(),
            place,
            "not UTF-8 from here on: save the file as UTF-8",
        )
    })?;
    // A byte order mark is allowed by YAML and refused by JSON.
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}
