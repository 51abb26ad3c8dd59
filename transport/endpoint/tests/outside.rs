//! The examples need their own crate and no other: they compile outside of the workspace as they
//! are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder outside of the workspace, which goes away.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind is only in the way.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_examples_compile_in_a_crate_of_their_own() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = std::env::temp_dir().join(format!("towpath-outside-{}", std::process::id()));
    let folder = Folder(folder);
    let programs = folder.0.join("src/bin");
    fs::create_dir_all(&programs).expect("a folder for a test");
    let of_handles = home.join("../handle");
    for (home, name) in [
        (&of_handles, "echo_handle.rs"),
        (&of_handles, "back_pressure.rs"),
        (&home.to_owned(), "echo_poll.rs"),
    ] {
        fs::copy(home.join("examples").join(name), programs.join(name)).expect("an example");
    }
    let manifest = format!(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\ntowpath-transport = {{ path = {home:?} }}\n\
         towpath-handle = {{ path = {of_handles:?} }}\n"
    );
    fs::write(folder.0.join("Cargo.toml"), manifest).expect("a manifest");
    // The versions that are here already: nothing is downloaded.
    fs::copy(home.join("../../Cargo.lock"), folder.0.join("Cargo.lock")).expect("a lock file");
    let checked = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet", "--bins"])
        .current_dir(&folder.0)
        // Kept between runs, so that only the first one checks the crates below.
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside"))
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
}
