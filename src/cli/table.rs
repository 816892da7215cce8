//! Tables on the terminal.

use comfy_table::{ContentArrangement, Table, presets};

/// Columns of text under their headings, each as wide as it must be.
pub(super) fn table<R: AsRef<[String]>>(headings: &[&str], rows: &[R]) -> String {
    let mut table = Table::new();
    _ = table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(headings);
    for row in rows {
        // A cell is one line: what breaks it comes from messages.
        let cells = row.as_ref().iter();
        _ = table.add_row(cells.map(|cell| cell.replace('\n', "; ")));
    }
    for column in table.column_iter_mut() {
        _ = column.set_padding((0, 2));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The text, or a dash for none.
pub(super) fn or_dash(text: Option<impl ToString>) -> String {
    text.map(|text| text.to_string())
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let rows = [["a".to_owned(), "bcd".to_owned()]];
        assert_eq!(table(&["LONG", "B"], &rows), "LONG  B\na     bcd\n");
        assert_eq!(table::<[String; 2]>(&["LONG", "B"], &[]), "LONG  B\n");
    }

    #[test]
    fn a_row_stays_one_line_however_long_it_is() {
        let rows = [[format!("{}\nb", "a ".repeat(300)), "c".to_owned()]];
        assert_eq!(table(&["A", "B"], &rows).lines().count(), 2);
    }
}
