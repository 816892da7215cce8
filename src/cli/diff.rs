//! `podherd diff`: what applying these files would change.

use std::path::PathBuf;

use similar::TextDiff;

use super::client::Reach;
use super::desired::Desired;
use super::manifests;
use super::output::print;
use super::{FAILED, WELL};
use crate::manifest;

/// Lines around a change.
const AROUND: usize = 3;

/// Its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Manifests: files with one or more documents, folders of .yaml, .yml and .json
    /// files, or - for standard input
    #[arg(short, long = "filename", required = true, value_name = "FILE|DIR|-")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    reach: Reach,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<u8> {
    let manifests = manifests::load(&arguments.files)?;
    let client = arguments.reach.connect().await?;
    let desired = Desired::load(&client).await?;
    let mut code = WELL;
    for manifest in &manifests {
        let name = &manifest.app.name;
        let before = desired.get(name);
        let old = before.map_or(&[][..], |entry| &entry.value);
        let new = &manifest.document.text;
        if before.is_some() && old == new {
            continue;
        }
        code = FAILED;
        let key = client.keys.app(name);
        let from = if before.is_some() { &key } else { "/dev/null" };
        let (old_text, new_text) = (String::from_utf8_lossy(old), String::from_utf8_lossy(new));
        print(&unified(
            from,
            &manifest.document.file,
            &old_text,
            &new_text,
        ))?;
        let same = manifest::parse(name.as_str(), old).is_ok_and(|app| app == manifest.app);
        if same {
            super::note(&format!(
                "{name}: only the text differs; no container would be touched"
            ));
        }
    }
    Ok(code)
}

fn unified(from: &str, to: &str, old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    let mut unified = diff.unified_diff();
    unified.context_radius(AROUND).header(from, to).to_string()
}
