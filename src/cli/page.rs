//! A page of fields and sections, as `podherd describe` shows it.

use std::fmt::{self, Write as _};

use super::table::table;

/// A page of fields and sections.
#[derive(Default)]
pub(super) struct Page(String);

impl Page {
    pub(super) fn into_text(self) -> String {
        self.0
    }

    pub(super) fn field(&mut self, name: &str, value: impl fmt::Display) {
        let name = format!("{name}:");
        // A string can't refuse.
        _ = writeln!(self.0, "{name:<16}{value}");
    }

    /// Nothing at all without lines.
    pub(super) fn section(&mut self, name: &str, lines: impl Iterator<Item = String>) {
        for (number, line) in lines.enumerate() {
            if number == 0 {
                _ = writeln!(self.0, "{name}:");
            }
            _ = writeln!(self.0, "  {line}");
        }
    }

    pub(super) fn table<const N: usize>(
        &mut self,
        name: &str,
        headings: &[&str; N],
        rows: &[[String; N]],
    ) {
        if !rows.is_empty() {
            let text = table(headings, rows);
            self.section(name, text.lines().map(str::to_owned));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_without_lines_is_left_out() {
        let mut page = Page::default();
        page.field("Name", "blog");
        page.section("Routes", std::iter::empty());
        page.section("Next", ["- nothing".to_owned()].into_iter());
        assert_eq!(
            page.into_text(),
            "Name:           blog\nNext:\n  - nothing\n"
        );
    }
}
