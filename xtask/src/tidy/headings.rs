//! The headings of a document, for links and citations.

/// The text of each heading, without its `#`; code blocks are left out.
pub(super) fn headings(text: &str) -> impl Iterator<Item = &str> {
    prose(text).filter_map(|(_, line)| {
        let rest = line.trim_start_matches('#');
        let depth = line.len() - rest.len();
        ((1..=6).contains(&depth) && rest.starts_with(' ')).then(|| rest.trim())
    })
}

/// The lines outside of code blocks, with their numbers from 1.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        (!fenced).then_some((at + 1, line))
    })
}

/// The anchor that a heading gets when the document is shown: lower case, dashes for blanks.
pub(super) fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_read_outside_of_code_blocks_only() {
        let text = "# A b\ntext\n```\n# not\n```\n### 3.1 C: `d`\n#no\n";
        assert_eq!(headings(text).collect::<Vec<_>>(), ["A b", "3.1 C: `d`"]);
        assert_eq!(anchor("3.1 C: `d` e_f"), "31-c-d-e_f");
    }
}
