//! How a listing is shown: a table for people, YAML and JSON for programs.

use std::io::{self, Write as _};

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

use super::table::table;

/// How it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Format {
    /// A table
    #[default]
    Table,
    /// A table with more columns
    Wide,
    /// YAML: all there is
    Yaml,
    /// JSON: all there is
    Json,
}

/// A column of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    /// Always shown.
    Always(&'static str),
    /// Shown with `-o wide`.
    Wide(&'static str),
}

/// Things of one kind, for people and for programs.
#[derive(Debug)]
pub(super) struct Listing {
    /// What they are called, in the plural.
    pub noun: &'static str,
    pub columns: &'static [Column],
    /// A cell a column.
    pub rows: Vec<Vec<String>>,
    /// The same things, whole.
    pub items: Vec<Value>,
}

impl Listing {
    /// The text in this format.
    pub(super) fn render(&self, format: Format) -> anyhow::Result<String> {
        let shown = |column: &Column| match column {
            Column::Always(_) => true,
            Column::Wide(_) => format == Format::Wide,
        };
        match format {
            Format::Yaml | Format::Json => data(format, &json!({ "items": self.items })),
            Format::Table | Format::Wide => {
                let columns = self.columns.iter().filter(|column| shown(column));
                let headings: Vec<_> = columns
                    .map(|(Column::Always(name) | Column::Wide(name))| *name)
                    .collect();
                let rows: Vec<Vec<String>> = self
                    .rows
                    .iter()
                    .map(|row| {
                        let cells = self.columns.iter().zip(row);
                        let cells = cells.filter(|(column, _)| shown(column));
                        cells.map(|(_, cell)| cell.clone()).collect()
                    })
                    .collect();
                Ok(table(&headings, &rows))
            }
        }
    }

    /// Prints it; where there is nothing, a person is told so.
    pub(super) fn print(&self, format: Format) -> anyhow::Result<()> {
        if self.rows.is_empty() && matches!(format, Format::Table | Format::Wide) {
            super::note(&format!("no {}", self.noun));
            return Ok(());
        }
        print(&self.render(format)?)
    }
}

/// A record as YAML or JSON.
pub(super) fn data(format: Format, value: &impl Serialize) -> anyhow::Result<String> {
    match format {
        Format::Yaml => Ok(serde_yaml::to_string(value)?),
        _ => Ok(format!("{}\n", serde_json::to_string_pretty(value)?)),
    }
}

/// A record with the app that it belongs to.
pub(super) fn item(app: &str, record: &impl Serialize) -> anyhow::Result<Value> {
    let mut item = json!({ "app": app });
    if let (Value::Object(item), Value::Object(fields)) = (&mut item, serde_json::to_value(record)?)
    {
        item.extend(fields);
    }
    Ok(item)
}

/// Prints a text as it is.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing() -> Listing {
        Listing {
            noun: "apps",
            columns: &[Column::Always("NAME"), Column::Wide("NODE")],
            rows: vec![vec!["blog".to_owned(), "host-a".to_owned()]],
            items: vec![json!({"name": "blog"})],
        }
    }

    #[test]
    fn only_a_wide_table_has_all_columns() {
        assert_eq!(listing().render(Format::Table).unwrap(), "NAME\nblog\n");
        let wide = listing().render(Format::Wide).unwrap();
        assert_eq!(wide, "NAME  NODE\nblog  host-a\n");
    }

    #[test]
    fn yaml_and_json_say_the_same() {
        let yaml = listing().render(Format::Yaml).unwrap();
        let json = listing().render(Format::Json).unwrap();
        let yaml: Value = serde_yaml::from_str(&yaml).unwrap();
        assert_eq!(yaml, serde_json::from_str::<Value>(&json).unwrap());
        assert_eq!(yaml["items"][0]["name"], "blog");
    }
}
