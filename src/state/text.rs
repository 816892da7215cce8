//! Texts of others in our messages.

/// How much of a text is shown.
const SHOWN: usize = 100;

/// A text of a length that fits a message. One that is too long to be a name stays none.
pub fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        assert_eq!(shorten("short"), "short");
        let shown = shorten(&"é".repeat(1_000_000));
        assert_eq!(shown.chars().count(), SHOWN + 1);
    }
}
