//! The header that is committed is the one that the crate makes, and the man page agrees with it.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Set it to write the header anew.
const WRITE: &str = "TOWPATH_WRITE_HEADER";

/// In the order in which a reader wants them.
const SOURCES: [&str; 8] =
    ["types", "library", "config", "endpoint", "link", "message", "memory", "lane"];

fn made() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(root.join(format!("src/ffi/{source}.rs")));
    }
    let mut header = Vec::new();
    builder.generate().expect("a header of these sources").write(&mut header);
    for_c(&String::from_utf8(header).expect("text"))
}

/// Without what only readers of the Rust code have to know: the section `# Safety`.
fn for_c(header: &str) -> String {
    let mut out = String::new();
    let mut lines = header.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "//" && lines.peek().is_some_and(|next| next.ends_with("# Safety")) {
            while lines.next_if(|next| next.starts_with("//")).is_some() {}
            continue;
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

#[test]
fn the_header_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/towpath.h");
    let made = made();
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, &made).expect("the header can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let differing = committed.lines().zip(made.lines()).position(|(old, new)| old != new);
    assert!(
        committed == made,
        "include/towpath.h is stale from line {} on: run this test with {WRITE}=1, and look at \
         what it changes",
        differing.map_or(committed.lines().count().min(made.lines().count()), |line| line) + 1
    );
}

#[test]
fn every_function_that_c_can_call_stands_in_the_header() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(root.join("include/towpath.h")).expect("the header");
    let mut functions = 0;
    for file in fs::read_dir(root.join("src/ffi")).expect("the folder of the functions") {
        let text = fs::read_to_string(file.expect("an entry").path()).expect("a source");
        for (_, rest) in text
            .match_indices("extern \"C\" fn tow_")
            .map(|(at, mark)| (at, &text[at + mark.len() - 4..]))
        {
            let name = rest.split('(').next().expect("a name");
            assert!(header.contains(&format!("{name}(")), "{name} is in no source of SOURCES");
            functions += 1;
        }
    }
    assert!(functions > 40, "{functions}: where are they?");
}

#[test]
fn the_man_page_names_functions_of_the_header_and_is_formatted_without_a_warning() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(root.join("include/towpath.h")).expect("the header");
    let path = root.join("man/towpath.3");
    let page = fs::read_to_string(&path).expect("the page");
    let named: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix(".Fn ")?.split(' ').next()).collect();
    assert!(named.len() > 20, "{named:?}");
    for name in named {
        assert!(header.contains(&format!("{name}(")), "{name}");
    }
    let groff = Command::new("groff").args(["-mdoc", "-Tutf8", "-ww", "-z"]).arg(&path).output();
    match groff {
        Ok(output) => assert_eq!(String::from_utf8_lossy(&output.stderr), ""),
        Err(error) => println!("skipped: groff: {error}"),
    }
}
