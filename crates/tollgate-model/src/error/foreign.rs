//! Texts of other programs, as errors and the log show them. Words of this crate need none of this.

use std::fmt::{self, Write as _};

/// Shows a text that another program has sent, in an error or in the log: a message of a server, the
/// name of a host that it named.
///
/// Signs that end a line, or that a terminal obeys, are escaped: a server could forge a line, or
/// hide one. Of a long text, the first 200 signs are shown.
///
/// ```
/// use tollgate::ForeignText;
///
/// let text = "no such table\n\u{1b}[2Jall is well";
/// assert_eq!(ForeignText(text).to_string(), "no such table\\n\\u{1b}[2Jall is well");
/// assert_eq!(ForeignText(&"x".repeat(1_000)).to_string().len(), 200 + "… (1000 bytes)".len());
/// ```
#[derive(Clone, Copy)]
pub struct ForeignText<'a>(pub &'a str);

/// The most signs that are shown.
const MOST_CHARS: usize = 200;

impl fmt::Display for ForeignText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut signs = self.0.chars();
        for sign in signs.by_ref().take(MOST_CHARS) {
            match sign {
                '"' | '\'' | '\\' => f.write_char(sign)?,
                _ => write!(f, "{}", sign.escape_debug())?,
            }
        }
        match signs.as_str() {
            "" => Ok(()),
            _ => write!(f, "… ({} bytes)", self.0.len()),
        }
    }
}

impl fmt::Debug for ForeignText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_that_end_a_line_or_move_a_cursor_are_escaped() {
        let shown = |text: &str| ForeignText(text).to_string();
        assert_eq!(
            shown("plain: \"ü\" and 'ß' \\ 漢"),
            "plain: \"ü\" and 'ß' \\ 漢"
        );
        for (sign, escaped) in [
            ("\n", "\\n"),
            ("\r", "\\r"),
            ("\0", "\\0"),
            ("\u{1b}", "\\u{1b}"),
            ("\u{9b}", "\\u{9b}"),
            ("\u{85}", "\\u{85}"),
            ("\u{2028}", "\\u{2028}"),
            ("\u{202e}", "\\u{202e}"),
            ("\u{7f}", "\\u{7f}"),
        ] {
            assert_eq!(shown(sign), escaped);
        }
    }

    #[test]
    fn a_long_text_is_cut_and_says_its_length() {
        let text = "ü".repeat(MOST_CHARS);
        assert_eq!(ForeignText(&text).to_string(), text);
        let longer = text.clone() + "\n";
        assert_eq!(ForeignText(&longer).to_string(), text + "… (401 bytes)");
        // An escaped sign is longer than the sign itself.
        let escaped = ForeignText(&"\u{202e}".repeat(9_000_000)).to_string();
        assert!(escaped.len() < 2_000, "{}", escaped.len());
    }
}
