//! Parts of a file in words: which ones, what is wrong with them, and what mends them.

use std::fmt::Write as _;
use std::path::Path;

use towpath_spread::{Layout, NodeState};

/// Which parts, as in `part 1` or `parts 0, 1 and 3`.
pub(super) fn parts(parts: &[usize]) -> String {
    let numbers: Vec<String> = parts.iter().map(usize::to_string).collect();
    match &numbers[..] {
        [] => String::from("no part"),
        [one] => format!("part {one}"),
        [first @ .., last] => format!("parts {} and {last}", first.join(", ")),
    }
}

/// The same at the beginning of a sentence.
pub(super) fn parts_first(of: &[usize]) -> String {
    let text = parts(of);
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}

/// What is wrong with parts of a file, and the commands that mend it.
pub(super) fn advice(path: &Path, layout: &Layout, bad: &[usize], states: &[NodeState]) -> String {
    let is_away = |part: &&usize| states.get(**part) == Some(&NodeState::Unreachable);
    let (away, others): (Vec<&usize>, Vec<&usize>) = bad.iter().partition(is_away);
    let (away, others): (Vec<usize>, Vec<usize>) =
        (away.into_iter().copied().collect(), others.into_iter().copied().collect());
    let path = path.display();
    let is = |of: &[usize]| if of.len() == 1 { "is" } else { "are" };
    let mut text = String::new();
    // Writing to a string does not fail.
    if !others.is_empty() {
        let _ = write!(
            text,
            "{} {} missing or damaged: `towpath repair --scrub {path}`",
            parts_first(&others),
            is(&others)
        );
    }
    if !away.is_empty() {
        let servers: Vec<String> =
            away.iter().map(|part| layout.nodes[*part].server.to_string()).collect();
        let (servers, gap) = (servers.join(", "), if text.is_empty() { "" } else { ". " });
        let answers = if away.len() == 1 { "does" } else { "do" };
        let _ = write!(
            text,
            "{gap}{} {} missing, because {servers} {answers} not answer: `towpath repair {path}` \
             when it does, or `towpath repair {path} --replacements SERVERS`",
            parts_first(&away),
            is(&away)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_as_a_person_would() {
        assert_eq!(parts(&[1]), "part 1");
        assert_eq!(parts(&[0, 2]), "parts 0 and 2");
        assert_eq!(parts_first(&[0, 1, 3]), "Parts 0, 1 and 3");
        assert_eq!(parts_first(&[]), "No part");
    }
}
