//! Circles of imports between the modules at the top of one crate.
//!
//! A module of a crate that uses others which use it back cannot be read, tested or replaced alone.
//! The root of a crate is no module here: what it re-exports counts as the module it comes from.

use crate::source::{Code, find_words, is_in_module};
use crate::tree::{File, Tree};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Modules that all reach each other by imports.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    /// Their names; a folder ends with `/`.
    pub(crate) modules: Vec<String>,
    /// Those which use each other directly, and how often the first names the second and the second
    /// the first.
    pub(crate) pairs: Vec<(String, String, usize, usize)>,
}

type Edges = BTreeMap<(String, String), usize>;

/// The circles of the crate in `folder`, without what is for tests only.
pub(crate) fn circles(tree: &Tree, folder: &str, tests: &HashSet<String>) -> Vec<Circle> {
    let source = format!("{folder}/src/");
    let files: Vec<(&str, &File)> = tree
        .rust()
        .filter(|file| !is_in_module(&file.path, tests))
        .filter_map(|file| Some((file.path.strip_prefix(&source)?, file)))
        .collect();
    let edges = edges(&files);
    let modules: BTreeSet<&str> = edges.keys().map(|(user, _)| user.as_str()).collect();
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        modules.iter().map(|&module| (module, reach(&edges, module))).collect();
    let mut circles: Vec<Circle> = Vec::new();
    let mut seen = BTreeSet::new();
    for &module in &modules {
        let is_mutual =
            |other: &&&str| reached[module].contains(**other) && reached[**other].contains(module);
        let circle: Vec<&str> = modules.iter().filter(is_mutual).copied().collect();
        if circle.len() > 1 && seen.insert(circle.clone()) {
            circles.push(self::circle(&circle, &edges, &files));
        }
    }
    circles
}

fn circle(modules: &[&str], edges: &Edges, files: &[(&str, &File)]) -> Circle {
    let name = |module: &str| {
        let folder = format!("{module}/");
        let is_folder = files.iter().any(|(path, _)| path.starts_with(&folder));
        if is_folder { folder } else { module.to_owned() }
    };
    let count = |a: &str, b: &str| edges.get(&(a.to_owned(), b.to_owned())).copied().unwrap_or(0);
    let mut pairs = Vec::new();
    for (at, a) in modules.iter().enumerate() {
        for b in &modules[at + 1..] {
            let (there, back) = (count(a, b), count(b, a));
            if there > 0 && back > 0 {
                pairs.push((name(a), name(b), there, back));
            }
        }
    }
    Circle { modules: modules.iter().map(|module| name(module)).collect(), pairs }
}

fn reach<'a>(edges: &'a Edges, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut left = vec![from];
    while let Some(at) = left.pop() {
        let used = edges.keys().filter(|(user, _)| user == at).map(|(_, used)| used.as_str());
        left.extend(used.filter(|used| reached.insert(*used)));
    }
    reached
}

/// How often the first module names the second.
fn edges(files: &[(&str, &File)]) -> Edges {
    let codes: Vec<(Vec<&str>, Code)> = files
        .iter()
        .map(|(path, file)| (module(path), Code::read(&file.path, &file.text)))
        .collect();
    let tops: BTreeSet<&str> = codes.iter().filter_map(|(own, _)| own.first().copied()).collect();
    let mut exports = BTreeMap::new();
    for (_, code) in codes.iter().filter(|(own, _)| own.is_empty()) {
        for path in paths(code, &[]) {
            let [first, .., last] = path.as_slice() else { continue };
            if tops.contains(first.as_str()) {
                exports.insert(last.clone(), first.clone());
            }
        }
    }
    let mut edges = BTreeMap::new();
    for (own, code) in &codes {
        let Some(&user) = own.first() else { continue };
        for path in paths(code, own) {
            let Some(first) = path.first() else { continue };
            let is_top = tops.contains(first.as_str());
            let used = if is_top { Some(first) } else { exports.get(first) };
            if let Some(used) = used.filter(|used| *used != user) {
                *edges.entry((user.to_owned(), used.clone())).or_default() += 1;
            }
        }
    }
    edges
}

/// The module that a file of `src` is, as its path from the crate's root.
fn module(path: &str) -> Vec<&str> {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let mut parts: Vec<&str> = stem.split('/').collect();
    if matches!(parts.last(), Some(&("lib" | "main" | "mod"))) {
        parts.pop();
    }
    parts
}

/// The paths into the own crate that a module names, from the crate's root.
fn paths(code: &Code, own: &[&str]) -> Vec<Vec<String>> {
    let text = code.text();
    let mut named: Vec<Vec<String>> = Vec::new();
    let mut imports: Vec<(usize, usize)> = Vec::new();
    for at in find_words(text, "use ").filter(|&at| !code.is_test(at)) {
        let Some(len) = text[at..].find(';') else { continue };
        imports.push((at, at + len));
        expand(&[], &text[at + "use ".len()..at + len], &mut named);
    }
    for at in find_words(text, "crate::").chain(find_words(text, "super::")) {
        let is_import = imports.iter().any(|&(start, end)| (start..end).contains(&at));
        let is_inner = text[..at].ends_with("::");
        if is_import || is_inner || code.is_test(at) {
            continue;
        }
        let is_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let end = text[at..].find(|c| !is_path(c)).map_or(text.len(), |len| at + len);
        expand(&[], &text[at..end], &mut named);
    }
    named.into_iter().filter_map(|path| from_root(path, own)).collect()
}

/// A path as the module `own` writes it, from the crate's root; none for what is not of this crate.
fn from_root(path: Vec<String>, own: &[&str]) -> Option<Vec<String>> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    let rest = |skip: usize| path[skip..].to_vec();
    match path.first().map(String::as_str)? {
        "crate" => Some(rest(1)),
        "super" => {
            let above = own.len().checked_sub(ups)?;
            let mut full: Vec<String> = own[..above].iter().map(|&part| part.to_owned()).collect();
            full.extend(rest(ups));
            Some(full)
        }
        "self" if own.is_empty() => Some(rest(1)),
        _ if own.is_empty() => Some(path),
        _ => None,
    }
}

/// The single paths of a `use` with its braces.
fn expand(prefix: &[String], text: &str, named: &mut Vec<Vec<String>>) {
    let (head, group) = match text.split_once('{') {
        Some((head, group)) => (head, Some(group)),
        None => (text.split(" as ").next().unwrap_or(text), None),
    };
    let parts = head.split("::").map(str::trim).filter(|part| !part.is_empty());
    let mut path = prefix.to_vec();
    path.extend(parts.map(str::to_owned));
    let Some(group) = group else {
        if path.len() > prefix.len() {
            named.push(path);
        }
        return;
    };
    let mut depth = 0_usize;
    let mut start = 0;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            '}' => {
                expand(&path, &group[start..at], named);
                return;
            }
            ',' if depth == 0 => {
                expand(&path, &group[start..at], named);
                start = at + 1;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Circle> {
        let tree = Tree::of(files);
        let tests = tree.test_modules();
        circles(&tree, "cc", &tests)
    }

    #[test]
    fn a_circle_through_three_modules_is_found_with_the_pair_that_closes_it() {
        let found = found(&[
            ("cc/src/lib.rs", "mod a; mod b; mod c; mod d;\n"),
            ("cc/src/a/mod.rs", "use crate::{b::{B, Other}, std::x};\nmod inner;\n"),
            ("cc/src/a/inner.rs", "use super::A;\n"),
            ("cc/src/b.rs", "fn b() { crate::c::f(); }\nuse crate::a::A;\n"),
            ("cc/src/c.rs", "use super::a::A as Renamed;\n"),
            ("cc/src/d.rs", "use crate::a::A;\n"),
        ]);
        let [circle] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(circle.modules, ["a/", "b", "c"]);
        assert_eq!(circle.pairs, [("a/".to_owned(), "b".to_owned(), 2, 1)]);
    }

    #[test]
    fn what_the_root_exports_comes_from_its_module() {
        let root = "mod a; mod b;\npub use a::{A, More};\n";
        let b = ("cc/src/b.rs", "use crate::A;\n");
        let uses = [("cc/src/lib.rs", root), ("cc/src/a.rs", "use crate::b::B;\n"), b];
        assert_eq!(found(&uses).len(), 1);
        let does_not = [("cc/src/lib.rs", root), ("cc/src/a.rs", "// crate::b::B\n"), b];
        assert_eq!(found(&does_not), []);
    }

    #[test]
    fn imports_of_tests_close_no_circle() {
        let root = ("cc/src/lib.rs", "mod a; mod b;\n#[cfg(test)]\nmod model;\n");
        let a = ("cc/src/a.rs", "#[cfg(test)]\nmod tests { use crate::b::B; }\n");
        let b = ("cc/src/b.rs", "use crate::a::A;\nuse crate::model::M;\n");
        let model = ("cc/src/model.rs", "use crate::b::B;\n");
        assert_eq!(found(&[root, a, b, model]), []);
    }
}
