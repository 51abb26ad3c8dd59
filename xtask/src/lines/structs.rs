//! Structs of a crate, their fields, and the methods of their `impl` blocks.

use crate::source::{Code, find_words};

/// A struct and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Struct {
    pub(super) name: String,
    /// The file that defines it.
    pub(super) file: String,
    pub(super) fields: usize,
    /// Functions of its `impl` blocks in its crate, those of traits included.
    pub(super) methods: usize,
    /// How many files have such blocks.
    pub(super) impl_files: usize,
}

/// An `impl` block.
struct Impl<'a> {
    of: &'a str,
    file: &'a str,
    methods: usize,
}

/// The structs of one crate, given its files that are not for tests only.
///
/// An `impl` belongs to the struct of that name in its own file or, failing that, to the one whose
/// path has the longest beginning in common with its file: imports are not followed.
pub(super) fn structs(files: &[(&str, Code)]) -> Vec<Struct> {
    let mut structs = Vec::new();
    let mut impls = Vec::new();
    for (path, code) in files {
        structs.extend(definitions(path, code));
        impls.extend(blocks(path, code));
    }
    let mut files_of: Vec<Vec<&str>> = vec![Vec::new(); structs.len()];
    for block in &impls {
        let named = (0..structs.len()).filter(|&at| structs[at].name == block.of);
        let Some(at) = named.max_by_key(|&at| common(&structs[at].file, block.file)) else {
            continue;
        };
        structs[at].methods += block.methods;
        if !files_of[at].contains(&block.file) {
            files_of[at].push(block.file);
        }
    }
    for (found, files) in structs.iter_mut().zip(files_of) {
        found.impl_files = files.len();
    }
    structs
}

/// How many parts two paths have in common at their beginning; all, for a path and itself.
fn common(a: &str, b: &str) -> usize {
    let parts = a.trim_end_matches(".rs").split('/');
    parts.zip(b.trim_end_matches(".rs").split('/')).take_while(|(a, b)| a == b).count()
}

fn definitions<'a>(path: &'a str, code: &'a Code) -> impl Iterator<Item = Struct> + 'a {
    let text = code.text();
    find_words(text, "struct ").filter(|&at| !code.is_test(at)).filter_map(move |at| {
        let start = at + "struct ".len();
        let name = word(&text[start..]);
        let open = start + outside(&text[start..], |c| "{(;".contains(c))?;
        let body = text[open..].chars().next().filter(|&c| c != ';');
        let is_field = |&(from, piece): &(usize, &str)| {
            let blanks = piece.len() - piece.trim_start().len();
            !piece.trim().is_empty() && !code.is_test(open + 1 + from + blanks)
        };
        let fields =
            body.map_or(0, |_| pieces(&text[open + 1..]).into_iter().filter(is_field).count());
        let (name, file) = (name.to_owned(), path.to_owned());
        (!name.is_empty()).then_some(Struct { name, file, fields, methods: 0, impl_files: 0 })
    })
}

fn blocks<'a>(path: &'a str, code: &'a Code) -> impl Iterator<Item = Impl<'a>> + 'a {
    let text = code.text();
    let starts_item = |at: &usize| {
        let before = text[..*at].trim_end();
        let before = before.strip_suffix("unsafe").unwrap_or(before).trim_end();
        before.is_empty() || before.ends_with(['}', ';', '{', ']'])
    };
    let starts = find_words(text, "impl").filter(|&at| !code.is_test(at)).filter(starts_item);
    starts.filter_map(move |at| {
        let start = at + "impl".len();
        let open = start + outside(&text[start..], |c| c == '{')?;
        let of = implemented(&text[start..open]);
        Some(Impl { of, file: path, methods: functions(code, open) })
    })
}

/// The last word of the type that an `impl` is of, given what stands between `impl` and its brace.
fn implemented(header: &str) -> &str {
    let mut header = header.trim_start();
    if header.starts_with('<') {
        header = &header[outside(&header[1..], |c| c == '>').map_or(header.len(), |end| end + 2)..];
    }
    let header = find_words(header, "where").next().map_or(header, |at| &header[..at]);
    // The last one, since bounds of a trait's arguments may have `for<'a>` in them.
    let of = find_words(header, "for ").last().map_or(header, |at| &header[at + 4..]);
    let path = of.split('<').next().unwrap_or(of);
    word(path.rsplit("::").next().unwrap_or(path).trim_start_matches([' ', '\n', '&']))
}

/// The functions directly within the braces that open at `open`.
fn functions(code: &Code, open: usize) -> usize {
    let text = code.text();
    let mut depth = 0_usize;
    let mut end = text.len();
    let mut inner = Vec::new();
    for (at, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'{' => {
                depth += 1;
                inner.push((at, depth));
            }
            b'}' => {
                depth -= 1;
                inner.push((at, depth));
            }
            _ => {}
        }
        if depth == 0 {
            end = at;
            break;
        }
    }
    let depth_at = |at: usize| {
        let before = inner.partition_point(|&(brace, _)| brace < at);
        before.checked_sub(1).map_or(0, |last| inner[last].1)
    };
    let body = &text[open..end];
    // `fn` with a blank behind it is no type of a function.
    let found = find_words(body, "fn ").map(|at| open + at);
    found.filter(|&at| depth_at(at) == 1 && !code.is_test(at)).count()
}

/// The word that a text begins with.
fn word(text: &str) -> &str {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Where the first such character stands outside all angles.
fn outside(text: &str, is_wanted: impl Fn(char) -> bool) -> Option<usize> {
    let (mut angles, mut before) = (0_usize, ' ');
    for (at, c) in text.char_indices() {
        if angles == 0 && is_wanted(c) {
            return Some(at);
        }
        match c {
            '<' => angles += 1,
            '>' if before != '-' && before != '=' => angles = angles.saturating_sub(1),
            _ => {}
        }
        before = c;
    }
    None
}

/// What stands between the commas up to the closing bracket, and where each piece begins.
fn pieces(text: &str) -> Vec<(usize, &str)> {
    let (mut brackets, mut angles, mut before, mut start) = (0_usize, 0_usize, ' ', 0);
    let mut pieces = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => brackets += 1,
            ')' | ']' | '}' if brackets == 0 => {
                pieces.push((start, &text[start..at]));
                break;
            }
            ')' | ']' | '}' => brackets -= 1,
            '<' => angles += 1,
            '>' if before != '-' && before != '=' => angles = angles.saturating_sub(1),
            ',' if brackets == 0 && angles == 0 => {
                pieces.push((start, &text[start..at]));
                start = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize, usize, usize)> {
        let files: Vec<_> =
            files.iter().map(|&(path, text)| (path, Code::read(path, text))).collect();
        let all = structs(&files);
        all.into_iter().map(|s| (s.name, s.fields, s.methods, s.impl_files)).collect()
    }

    #[test]
    fn fields_are_counted_whatever_their_types() {
        let text = "pub struct A<F: Fn(u8) -> B<u8>> where F: X {\n    /// One, {two}.\n    a: \
                    B<C, D>,\n    #[cfg(test)]\n    t: u8,\n    #[serde(a, b)]\n    pub(crate) f: \
                    Box<dyn Fn(u8, u8) -> u8>,\n    c: [(u8, u8); 2]\n}\nstruct T(u8, B<C, D>);\n\
                    struct U;\n#[cfg(test)]\nstruct V { a: u8 }\n";
        let fields: Vec<_> = found(&[("a.rs", text)]).into_iter().map(|s| (s.0, s.1)).collect();
        let expected = [("A", 3), ("T", 2), ("U", 0)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(fields, expected);
    }

    #[test]
    fn methods_of_all_impls_are_counted_and_inner_functions_are_not() {
        let a = "struct A { a: u8 }\nimpl<T> A where T: Fn(u8) {\n    fn a(f: impl Fn()) { fn \
                 inner() \
                 {} }\n    const fn b(f: fn(u8)) {}\n    #[cfg(test)]\n    fn c() {}\n}\n\
                 impl From<B<u8>> for A { fn from() {} }\nfn free() -> impl Iterator {}\n";
        let b = "// impl A { fn x() {} }\nimpl<'a> crate::a::A<'a> { fn d() {} }\n";
        assert_eq!(found(&[("a.rs", a), ("b.rs", b)]), [("A".to_owned(), 1, 4, 2)]);
    }

    #[test]
    fn structs_of_one_name_keep_their_methods_apart() {
        let files = [
            ("x/a.rs", "struct S { a: u8 }\nimpl S { fn a() {} }\n"),
            ("x/a/more.rs", "impl S { fn b() {} }\n"),
            ("x/b.rs", "struct S { a: u8, b: u8 }\nimpl S { fn c() {} }\n"),
        ];
        let s = |fields, methods, files| ("S".to_owned(), fields, methods, files);
        assert_eq!(found(&files), [s(1, 2, 2), s(2, 1, 1)]);
    }
}
