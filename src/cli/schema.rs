//! `podherd schema`: the manifest's JSON Schema.

use std::io::Write;

use crate::manifest;

pub(super) fn run(out: &mut impl Write) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(&manifest::schema())?;
    Ok(writeln!(out, "{text}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_json_and_names_its_dialect() {
        let mut out = Vec::new();
        run(&mut out).unwrap();

        let schema: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert!(schema["$schema"].is_string());
    }
}
