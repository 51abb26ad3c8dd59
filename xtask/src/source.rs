//! Rust source with its comments and literals blanked out, and its tests found.

use std::collections::HashSet;
use std::ops::Range;

/// The text of a Rust file in which only code is left.
///
/// Blanked bytes become spaces and newlines stay, so offsets and line numbers are those of the
/// original.
pub(crate) struct Code {
    text: String,
    tests: Vec<Range<usize>>,
}

impl Code {
    /// Reads a file; `path` tells whether it is a test as a whole.
    pub(crate) fn read(path: &str, text: &str) -> Self {
        let text = blank(text, |_| false);
        let whole = is_test_path(path) || text.contains("#![cfg(test)]");
        let whole_range = 0..text.len();
        let tests = if whole { vec![whole_range] } else { test_ranges(&text) };
        Self { text, tests }
    }

    /// The code, blanks in place of everything else.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the byte at `at` is compiled for tests only.
    pub(crate) fn is_test(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    /// The modules in files of their own that are compiled for tests only: the path of each from
    /// the root, without `.rs`.
    pub(crate) fn test_modules(&self, path: &str) -> Vec<String> {
        let stem = path.strip_suffix(".rs").unwrap_or(path);
        let folder = match stem.rsplit_once('/') {
            Some((folder, "lib" | "main" | "mod")) => folder,
            _ => stem,
        };
        let items = self.tests.iter().filter_map(|range| self.text.get(range.clone()));
        let names = items.filter_map(|item| {
            let declared = item.strip_suffix(';')?;
            declared.split_whitespace().skip_while(|word| *word != "mod").nth(1)
        });
        names.map(|name| format!("{folder}/{name}")).collect()
    }

    /// Lines of code in the file, whose text is given again: neither blank nor a comment nor
    /// for tests only. A line of a string counts.
    pub(crate) fn lines(&self, text: &str) -> usize {
        let code = blank(text, |first| first != b'/');
        let mut start = 0;
        let is_code = |line: &&str| {
            let from = start;
            start += line.len();
            line.bytes()
                .zip(from..)
                .any(|(byte, at)| !byte.is_ascii_whitespace() && !self.is_test(at))
        };
        code.split_inclusive('\n').filter(is_code).count()
    }

    /// The offsets at which `pattern` stands as whole words.
    pub(crate) fn find<'a>(&'a self, pattern: &'a str) -> impl Iterator<Item = usize> + 'a {
        find_words(&self.text, pattern)
    }
}

/// The offsets of `pattern` in `text` where no identifier runs into either of its ends.
pub(crate) fn find_words<'a>(text: &'a str, pattern: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    let bytes = text.as_bytes();
    let starts_word = is_word(pattern.bytes().next());
    let ends_word = is_word(pattern.bytes().last());
    text.match_indices(pattern).map(|(at, _)| at).filter(move |&at| {
        let before = at.checked_sub(1).map(|i| bytes[i]);
        let after = bytes.get(at + pattern.len()).copied();
        !(starts_word && is_word(before) || ends_word && is_word(after))
    })
}

/// The line, counted from 1, in which the byte at `at` stands.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1
}

fn is_test_path(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name == "tests.rs"
        || path
            .split('/')
            .rev()
            .skip(1)
            .any(|part| ["tests", "benches", "examples"].contains(&part))
}

/// The modules of all these files, by path and text, that are compiled for tests only
/// ([`Code::test_modules`]).
pub(crate) fn test_modules<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> HashSet<String> {
    files.flat_map(|(path, text)| Code::read(path, text).test_modules(path)).collect()
}

/// Whether a file is one of these modules, or below one.
pub(crate) fn is_in_module(path: &str, modules: &HashSet<String>) -> bool {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let mut ends = stem.match_indices('/').map(|(at, _)| at).chain([stem.len()]);
    ends.any(|end| modules.contains(&stem[..end]))
}

/// The ranges of what carries `#[cfg(test)]` or `#[cfg(all(test, ..))]`.
fn test_ranges(code: &str) -> Vec<Range<usize>> {
    let marks = ["#[cfg(test)]", "#[cfg(all(test,"].into_iter();
    let starts = marks.flat_map(|mark| code.match_indices(mark)).map(|(at, _)| at);
    starts.map(|at| at..at + item_len(&code[at..])).collect()
}

/// The length of the item, field, variant or statement that the code begins with, its attributes
/// included: to its semicolon or closing brace, or to the comma of what is no item.
fn item_len(code: &str) -> usize {
    const WITH_COMMAS: [&str; 8] =
        ["enum", "fn", "impl", "struct", "trait", "type", "union", "use"];
    let (mut brackets, mut angles, mut is_item) = (0_usize, 0_usize, false);
    let mut before = ' ';
    let mut word_start = 0;
    for (at, c) in code.char_indices() {
        let is_word = c.is_ascii_alphanumeric() || c == '_';
        if !is_word {
            is_item |= brackets == 0 && WITH_COMMAS.contains(&&code[word_start..at]);
            word_start = at + 1;
        }
        match c {
            '{' | '(' | '[' => brackets += 1,
            '}' | ')' | ']' if brackets == 0 => return at,
            '}' if brackets == 1 => return at + 1,
            '}' | ')' | ']' => brackets -= 1,
            '<' => angles += 1,
            '>' if before != '-' && before != '=' => angles = angles.saturating_sub(1),
            ';' if brackets == 0 => return at + 1,
            ',' if brackets == 0 && angles == 0 && !is_item => return at + 1,
            _ => {}
        }
        before = c;
    }
    code.len()
}

/// The text with its literals blanked out and its comments kept.
pub(crate) fn without_literals(text: &str) -> String {
    blank(text, |first| first == b'/')
}

/// Replaces comments and literals by spaces, but for those whose first byte is to be kept: comments
/// begin with a slash.
fn blank(text: &str, is_kept: impl Fn(u8) -> bool) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = skip_end(bytes, at);
        if end == at {
            at += 1;
            continue;
        }
        let kept = is_kept(bytes[at]);
        for byte in out[at..end].iter_mut().filter(|byte| **byte != b'\n' && !kept) {
            *byte = b' ';
        }
        at = end;
    }
    for byte in &mut out {
        if !byte.is_ascii() {
            *byte = b' ';
        }
    }
    String::from_utf8(out).expect("every byte that is not ASCII was just replaced")
}

/// The end of the comment or literal that starts at `at`; `at` when none does.
fn skip_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return at + block_comment_len(rest);
    }
    match rest[0] {
        b'"' => at + string_len(rest),
        b'\'' => at + char_len(rest),
        b'r' if !follows_word(bytes, at) => at + raw_string_len(rest),
        _ => at,
    }
}

fn follows_word(bytes: &[u8], at: usize) -> bool {
    // `br"` and `cr"` are raw strings too, so those two letters do not count as a word.
    let before = |back: usize| at.checked_sub(back).map(|i| bytes[i]);
    let is_word = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    match before(1) {
        Some(b'b' | b'c') => is_word(before(2)),
        other => is_word(other),
    }
}

fn block_comment_len(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut i = 0;
    while i < rest.len() {
        if rest[i..].starts_with(b"/*") {
            depth += 1;
            i += 2;
        } else if rest[i..].starts_with(b"*/") {
            depth -= 1;
            i += 2;
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    rest.len()
}

fn string_len(rest: &[u8]) -> usize {
    let mut i = 1;
    while i < rest.len() {
        match rest[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    rest.len()
}

fn raw_string_len(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&b| b == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = &rest[2 + hashes..];
    let end = body.windows(close.len()).position(|window| window == close);
    end.map_or(rest.len(), |end| 2 + hashes + end + close.len())
}

/// The length of a character literal, or 0 when the quote starts a lifetime.
fn char_len(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        let close = rest.iter().skip(3).position(|&b| b == b'\'');
        return close.map_or(0, |close| close + 4);
    }
    // A character is at most four bytes of UTF-8.
    let close = rest.iter().skip(2).take(4).position(|&b| b == b'\'');
    match close {
        Some(0) => 3,
        Some(more) if !rest[1].is_ascii() => more + 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(text: &str) -> String {
        blank(text, |_| false).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_go_and_code_stays() {
        assert_eq!(left("a /* b /* c */ d */ e // f\ng"), "a e g");
        assert_eq!(left(r#"f("x \" y", 'z', '\'', '\u{1}')"#), "f( , , , )");
        assert_eq!(left("r\"a\\\" b r#\"c \" d\"# br\"e\" f"), "b b f");
        assert_eq!(left("for<'a> &'a str; 'x' bar\"\""), "for<'a> &'a str; bar");
    }

    #[test]
    fn modules_for_tests_only_are_told_by_the_file_that_declares_them() {
        let text = "mod a;\n#[cfg(test)]\nmod model;\n#[cfg(test)]\nmod tests { fn a() {} }\n";
        assert_eq!(
            Code::read("cc/src/lib.rs", text).test_modules("cc/src/lib.rs"),
            ["cc/src/model"]
        );
        assert_eq!(Code::read("cc/src/b.rs", text).test_modules("cc/src/b.rs"), ["cc/src/b/model"]);
    }

    #[test]
    fn comments_can_be_kept() {
        assert_eq!(without_literals("a \"b\" // \"c\"\nd"), "a     // \"c\"\nd");
    }

    #[test]
    fn lengths_and_lines_are_kept() {
        let text = "a\n\"b\nc\" d\n";
        assert_eq!(blank(text, |_| false).len(), text.len());
        assert_eq!(line_of(text, blank(text, |_| false).find('d').unwrap()), 3);
    }

    #[test]
    fn words_are_found_only_whole() {
        let code = Code::read("a.rs", "std::x; my_std::y; HashMapped; HashMap<A>");
        assert_eq!(code.find("std::").count(), 1);
        assert_eq!(code.find("HashMap").count(), 1);
    }

    #[test]
    fn test_items_end_at_their_closing_brace() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\nfn c() {}\n";
        let code = Code::read("src/a.rs", text);
        let at = |name: &str| text.find(name).unwrap();
        assert!(!code.is_test(at("fn a")) && code.is_test(at("fn b")));
        assert!(!code.is_test(at("fn c")));
        assert!(Code::read("src/a/tests.rs", text).is_test(at("fn c")));
        assert!(Code::read("tests/src/lib.rs", text).is_test(at("fn c")));
    }

    #[test]
    fn fields_and_statements_for_tests_end_where_they_end() {
        let text = "struct A {\n    #[cfg(test)]\n    x: B<C, D>,\n    y: u8,\n}\n\
                    fn a() {\n    #[cfg(test)]\n    { one(); }\n    two();\n    f(#[cfg(test)] \
                    z);\n    \
                    three();\n}\n#[cfg(all(test, not(loom)))]\nmod t { fn u() {} }\n\
                    #[cfg(test)]\nfn g<E, F>(e: E, f: F) where E: X, F: Y { four(); }\n\
                    #[cfg(any(test, loom))]\nfn five() {}\n";
        let code = Code::read("src/a.rs", text);
        for name in ["x:", "D>", "one", "z)", "fn u", "fn g", "four"] {
            assert!(code.is_test(text.find(name).unwrap()), "{name}");
        }
        for name in ["y:", "two", "three", "five"] {
            assert!(!code.is_test(text.find(name).unwrap()), "{name}");
        }
    }

    #[test]
    fn lines_count_without_blanks_comments_and_tests_but_with_those_of_strings() {
        let lines = |text: &str| Code::read("src/a.rs", text).lines(text);
        assert_eq!(lines("//! A.\n\nfn a() {} // b\n\n    /// C.\nfn c() {}\n"), 2);
        assert_eq!(lines("/* a /* b\n*/ still\n*/ fn a() {}\n/* b */\n"), 1);
        assert_eq!(lines("const A: &str = \"// no comment\n/* nor this\n\";\nfn a() {}\n"), 4);
        assert_eq!(lines("const A: &str = r#\"\n\" // still \"\n\"#;\n// a\n"), 3);
        assert_eq!(lines("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n"), 2);
        let whole = "fn a() {}\n";
        assert_eq!(Code::read("src/a/tests.rs", whole).lines(whole), 0);
        assert_eq!(Code::read("tests/a.rs", whole).lines(whole), 0);
    }
}
