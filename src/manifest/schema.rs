//! The JSON Schema of a manifest, for editors and for checks in a repository.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::envelope::Document;

/// The JSON Schema (draft 2020-12) of a whole manifest.
///
/// It knows the shape and nothing of what refers to what; [`parse`](super::parse)
/// has the last word.
pub fn schema() -> Value {
    let schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<Document>();
    let mut value = Value::from(schema);
    if let Some(map) = value.as_object_mut() {
        map.insert("title".to_owned(), "Podherd app manifest".into());
    }
    value
}
