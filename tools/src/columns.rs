//! Tables whose columns are as wide as what is in them.

use std::borrow::Cow;

/// Between two columns.
const GAP: &str = "  ";

/// A name that somebody chose, as it may stand in a line: no character of it ends the line, or
/// tells a terminal something.
pub(crate) fn one_line(name: &str) -> Cow<'_, str> {
    if !name.chars().any(char::is_control) {
        return name.into();
    }
    let shown = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    name.chars().map(shown).collect::<String>().into()
}

/// A head and rows, each of as many cells; columns of `left` are flush left, the others right.
pub(crate) fn columns<const N: usize>(
    head: [&str; N],
    left: &[usize],
    rows: &[[String; N]],
) -> String {
    let head = head.map(String::from);
    let rows: Vec<_> = rows.iter().map(|row| row.each_ref().map(|cell| one_line(cell))).collect();
    let head = head.each_ref().map(|cell| one_line(cell));
    let lines = || std::iter::once(&head).chain(&rows);
    let mut widths = [0; N];
    for row in lines() {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in lines() {
        let cells = row.iter().zip(widths).enumerate().map(|(place, (cell, width))| {
            if left.contains(&place) {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        let line = cells.collect::<Vec<_>>().join(GAP);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_ends_a_line_or_talks_to_the_terminal() {
        let text =
            columns(["name"], &[0], &[["a\nb\x1b[2J".to_owned()], ["plain \u{e4}".to_owned()]]);
        assert_eq!(text, "name\na\\nb\\u{1b}[2J\nplain \u{e4}\n");
        assert!(matches!(one_line("as it is"), Cow::Borrowed("as it is")));
    }

    #[test]
    fn columns_never_touch_however_long_a_cell_is() {
        let row = |name: &str, count: &str| [name.to_owned(), count.to_owned(), "x".to_owned()];
        let rows = [row("a", "1"), row("[2001:db8::1234:5678]:49152", "12,345,678,901,234")];
        let text = columns(["name", "count", "last"], &[0, 2], &rows);
        let wanted = "name                                      count  last\n\
                      a                                             1  x\n\
                      [2001:db8::1234:5678]:49152  12,345,678,901,234  x\n";
        assert_eq!(text, wanted);
    }
}
