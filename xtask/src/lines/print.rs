//! Sizes as tables and as JSON.

use super::{LISTED, Size, Struct};
use crate::arrows::folders::Circle;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Tables for people; with `base`, each figure of now has the one before it and the difference.
pub(super) fn tables(now: &Size, base: Option<&Size>) -> String {
    let mut text = heading("lines of code by crate", "lines", base);
    for name in names(now, base) {
        text += &row(&name, lines(now, &name), base.map(|base| lines(base, &name)));
    }
    text += &row("total", Some(now.total()), base.map(|base| Some(base.total())));
    text += &heading("\nlargest structs", "fields", base);
    for (of, found) in now.structs.iter().take(LISTED) {
        let before =
            |figure: fn(&Struct) -> usize| base.map(|base| same(base, of, found).map(figure));
        text += &row(
            &format!("{} ({})", found.name, found.file),
            Some(found.fields),
            before(|s| s.fields),
        );
        let methods = format!("  its methods, in {} files", found.impl_files);
        text += &row(&methods, Some(found.methods), before(|s| s.methods));
    }
    text += &heading("\nlongest files", "lines", base);
    for (path, lines) in now.files.iter().take(LISTED) {
        text += &row(path, Some(*lines), base.map(|base| file(base, path)));
    }
    for (label, size) in base.map(|base| ("before", base)).into_iter().chain([("now", now)]) {
        text += &format!("\ncircles of imports, {label}\n");
        size.circles.iter().for_each(|(of, circle)| text += &shown(of, circle));
    }
    text
}

/// A circle; of its pairs those of two folders.
fn shown(of: &str, circle: &Circle) -> String {
    let mut text =
        format!("{of}, {} modules: {}\n", circle.modules.len(), circle.modules.join(" "));
    for (a, b, there, back) in &circle.pairs {
        if a.ends_with('/') && b.ends_with('/') {
            text += &format!("  {a} names {b} {there} times, {b} names {a} {back} times\n");
        }
    }
    text
}

/// `{"now": SIZE, "base": SIZE, "difference": {"lines": .., "crates": {NAME: ..}}}`; the last two
/// are null without a revision.
pub(super) fn to_json(now: &Size, base: Option<&Size>) -> Value {
    let difference = base.map(|base| {
        let of = |name: &String| {
            let (now, base) = (lines(now, name).unwrap_or(0), lines(base, name).unwrap_or(0));
            (name.clone(), json!(now as i64 - base as i64))
        };
        let crates: Map<String, Value> = names(now, Some(base)).iter().map(of).collect();
        json!({ "lines": now.total() as i64 - base.total() as i64, "crates": crates })
    });
    json!({ "now": size_json(now), "base": base.map(size_json), "difference": difference })
}

fn size_json(size: &Size) -> Value {
    let crates = size
        .crates
        .iter()
        .map(|found| json!({ "name": found.name, "folder": found.folder, "lines": found.lines }));
    let structs = size.structs.iter().take(LISTED).map(|(of, found)| {
        json!({
            "crate": of,
            "name": found.name,
            "file": found.file,
            "fields": found.fields,
            "methods": found.methods,
            "impl_files": found.impl_files,
        })
    });
    let files = size.files.iter().take(LISTED);
    let files = files.map(|(path, lines)| json!({ "path": path, "lines": lines }));
    let circles = size.circles.iter().map(|(of, circle)| {
        let pairs: Vec<Value> = circle.pairs.iter().map(pair_json).collect();
        json!({ "crate": of, "modules": circle.modules, "pairs": pairs })
    });
    json!({
        "lines": size.total(),
        "crates": crates.collect::<Vec<_>>(),
        "structs": structs.collect::<Vec<_>>(),
        "files": files.collect::<Vec<_>>(),
        "circles": circles.collect::<Vec<_>>(),
    })
}

fn pair_json(pair: &(String, String, usize, usize)) -> Value {
    let (a, b, there, back) = pair;
    json!({ "a": a, "b": b, "a_names_b": there, "b_names_a": back })
}

/// All crates of both, in order.
fn names(now: &Size, base: Option<&Size>) -> BTreeSet<String> {
    let crates = now.crates.iter().chain(base.into_iter().flat_map(|base| &base.crates));
    crates.map(|found| found.name.clone()).collect()
}

fn lines(size: &Size, name: &str) -> Option<usize> {
    size.crates.iter().find(|found| found.name == name).map(|found| found.lines)
}

fn file(size: &Size, path: &str) -> Option<usize> {
    size.files.iter().find(|file| file.0 == path).map(|file| file.1)
}

/// The struct of that name and crate: in the same file, or else the largest.
fn same<'a>(size: &'a Size, of: &str, found: &Struct) -> Option<&'a Struct> {
    let all = || size.structs.iter().filter(|(o, s)| o == of && s.name == found.name);
    all().find(|(_, s)| s.file == found.file).or_else(|| all().next()).map(|(_, s)| s)
}

fn heading(title: &str, what: &str, base: Option<&Size>) -> String {
    match base {
        Some(_) => format!("{title:60} {:>9} {what:>9} {:>9}\n", "before", "more"),
        None => format!("{title:60} {what:>9}\n"),
    }
}

/// A line with a figure of now, and with one of before where there is a revision to compare with.
fn row(name: &str, now: Option<usize>, base: Option<Option<usize>>) -> String {
    let number = |figure: Option<usize>| figure.map_or("-".to_owned(), |f| f.to_string());
    let Some(base) = base else { return format!("{name:60} {:>9}\n", number(now)) };
    let more = now.unwrap_or(0) as i64 - base.unwrap_or(0) as i64;
    format!("{name:60} {:>9} {:>9} {more:>+9}\n", number(base), number(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    const MANIFEST: (&str, &str) = ("cc/Cargo.toml", "[package]\nname = \"towpath-cc\"\n");

    #[test]
    fn both_and_the_difference_are_told() {
        let base = Size::of(&Tree::of(&[MANIFEST, ("cc/src/lib.rs", "struct A { a: u8 }\n")]));
        let now = "struct A { a: u8, b: u8 }\nfn a() {}\n";
        let now = Size::of(&Tree::of(&[MANIFEST, ("cc/src/lib.rs", now)]));
        let json = to_json(&now, Some(&base));
        assert_eq!((&json["now"]["lines"], &json["base"]["lines"]), (&json!(2), &json!(1)));
        assert_eq!(json["difference"], json!({ "lines": 1, "crates": { "towpath-cc": 1 } }));
        assert_eq!(to_json(&now, None)["base"], Value::Null);
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let table: Vec<_> = tables(&now, Some(&base)).lines().map(words).collect();
        assert!(table.contains(&words("total 1 2 +1")));
        assert!(table.contains(&words("A (cc/src/lib.rs) 1 2 +1")));
        let alone: Vec<_> = tables(&now, None).lines().map(words).collect();
        assert!(alone.contains(&words("total 2")));
    }

    #[test]
    fn a_file_that_was_not_there_before_has_no_figure_of_before() {
        assert_eq!(row("a", Some(3), Some(None)).split_whitespace().last(), Some("+3"));
        assert!(row("a", Some(3), Some(None)).contains(" - "));
    }
}
