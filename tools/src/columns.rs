//! Tables whose columns are as wide as what is in them.

/// Between two columns.
const GAP: &str = "  ";

/// A head and rows, each of as many cells; columns of `left` are flush left, the others right.
pub(crate) fn columns<const N: usize>(
    head: [&str; N],
    left: &[usize],
    rows: &[[String; N]],
) -> String {
    let head = head.map(String::from);
    let mut widths = [0; N];
    for row in std::iter::once(&head).chain(rows) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&head).chain(rows) {
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
