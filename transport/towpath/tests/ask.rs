//! The program that the documentation shows is as short as it says, and does what it says.

#[path = "../examples/ask.rs"]
#[allow(dead_code, reason = "a program, of which the test calls the beginning")]
mod program;

const TEXT: &str = include_str!("../examples/ask.rs");

#[test]
fn the_program_of_the_documentation_runs_has_at_most_sixty_lines_and_names_one_crate() {
    assert!(TEXT.lines().count() <= 60, "{} lines", TEXT.lines().count());
    let names = TEXT.lines().filter_map(|line| line.strip_prefix("use "));
    let others: Vec<_> =
        names.filter(|name| !name.starts_with("std::") && !name.starts_with("towpath::")).collect();
    assert!(others.is_empty(), "{others:?}");
    program::main().expect("each request has its answer, over two links");
}
