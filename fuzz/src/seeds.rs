//! The committed seeds of targets that make theirs: compared with what is made, or written.

use std::path::Path;

/// Set to write the seeds instead of comparing them.
const WRITE: &str = "TOWPATH_FUZZ_WRITE_SEEDS";

/// Compares `made` with the files in `seeds/<target>/`, and lets none of them break the target.
///
/// # Panics
/// When a file differs or is missing; `TOWPATH_FUZZ_WRITE_SEEDS=1 cargo test` writes them.
pub(crate) fn check(target: &str, made: &[(&str, Vec<u8>)]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let run = crate::targets().iter().find(|known| known.name == target).expect("a target").run;
    for (name, bytes) in made {
        let path = folder.join(name);
        if std::env::var_os(WRITE).is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, bytes).unwrap();
        }
        let committed = std::fs::read(&path).unwrap_or_default();
        assert!(committed == *bytes, "{} differs; {WRITE}=1 writes it", path.display());
        run(bytes);
    }
}
