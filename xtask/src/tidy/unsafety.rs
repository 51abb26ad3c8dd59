//! Unsafe code stands only in the rooms that are listed, and says why it is sound.

use crate::finding::Finding;
use crate::source::{Code, line_of};
use crate::tree::{File, Tree};
use crate::workspace::Package;

/// A folder or a file (the path without `.rs`) where unsafe code may stand, and why it must.
struct Room {
    path: &'static str,
    #[allow(dead_code, reason = "read by people, and by the test that each room gives one")]
    why: &'static str,
}

const ROOMS: &[Room] = &[
    Room {
        path: "transport/base/src/crc",
        why: "an instruction that not every processor has is called after asking for it",
    },
    Room {
        path: "transport/memory/src",
        why: "bytes that a peer may write under us are reached by raw pointers, here only",
    },
    Room {
        path: "transport/device-roce/src/udp",
        why: "socket calls with control messages and batches exist only in C's terms",
    },
    Room {
        path: "transport/device-verbs/src/sys",
        why: "libibverbs is a library of C: every call of it is foreign",
    },
    Room {
        path: "chunkserver/disk/src/uring/ring",
        why: "the kernel is given addresses of buffers, and uses them after the call",
    },
    Room {
        path: "transport/capi/src/ffi",
        why: "what C calls gets pointers from it, and gives some: each function of the header",
    },
    Room {
        path: "tools/src/lossy/tap",
        why: "a TAP device is made by one control call on a file, which exists only in C's terms",
    },
    Room {
        path: "xtask/no-std-proof/src/lib",
        why: "an allocator is an unsafe trait, and the final link without std wants one",
    },
];

/// How far above an unsafe block its reason may begin, lines.
const REASON_LINES_MAX: usize = 12;

pub(super) fn check(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let has_room =
            ROOMS.iter().any(|room| room.path.starts_with(&format!("{}/", package.folder)));
        for root in &package.roots {
            findings.extend(check_root(tree, root, has_room));
        }
    }
    for file in tree.rust() {
        check_file(file, &mut findings);
    }
    findings
}

fn check_root(tree: &Tree, root: &str, has_room: bool) -> Option<Finding> {
    if in_room(root) {
        return None;
    }
    let code = Code::read(root, tree.text(root)?);
    let forbids = code.text().contains("#![forbid(unsafe_code)]");
    let denies = has_room && code.text().contains("#![deny(unsafe_code)]");
    if forbids || denies {
        return None;
    }
    let wanted = if has_room { "deny" } else { "forbid" };
    Some(Finding::error(root, 0, format!("`#![{wanted}(unsafe_code)]` is missing")))
}

fn in_room(path: &str) -> bool {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    ROOMS.iter().any(|room| stem == room.path || path.starts_with(&format!("{}/", room.path)))
}

fn check_file(file: &File, findings: &mut Vec<Finding>) {
    let code = Code::read(&file.path, &file.text);
    let allowed = in_room(&file.path);
    let lines: Vec<&str> = file.text.lines().collect();
    for at in code.find("unsafe") {
        let line = line_of(&file.text, at);
        let message = if !allowed {
            "unsafe code belongs in the rooms listed in xtask/src/tidy/unsafety.rs"
        } else if !has_reason(&lines, line) {
            "no `// SAFETY:` (or `# Safety` for a function) says why this is sound"
        } else {
            continue;
        };
        findings.push(Finding::error(&file.path, line, message));
    }
}

/// Whether the line (from 1), or what stands above it without an empty line, gives a reason.
fn has_reason(lines: &[&str], line: usize) -> bool {
    let above = lines[..line].iter().rev().take(REASON_LINES_MAX + 1);
    above
        .take_while(|text| !text.trim().is_empty())
        .any(|text| text.contains("SAFETY:") || text.contains("# Safety"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)]), &[]).len()
    }

    fn package(folder: &str) -> Package {
        Package {
            name: "a".to_owned(),
            folder: folder.to_owned(),
            dependencies: Vec::new(),
            roots: vec![format!("{folder}/src/lib.rs")],
        }
    }

    #[test]
    fn unsafe_code_stands_only_in_its_rooms() {
        let text = "//! A.\n// SAFETY: it is.\nunsafe { a() }\n";
        assert_eq!(found("transport/memory/src/region.rs", text), 0);
        assert_eq!(found("transport/device-roce/src/udp.rs", text), 0);
        assert_eq!(found("transport/device-roce/src/udp/call.rs", text), 0);
        assert_eq!(found("transport/device-roce/src/udplink.rs", text), 1);
        assert_eq!(found("transport/proto/src/lib.rs", text), 1);
        assert_eq!(found("transport/proto/src/lib.rs", "//! unsafe\n#![forbid(unsafe_code)]\n"), 0);
    }

    #[test]
    fn a_reason_stands_right_above_or_not_at_all() {
        let room = "transport/memory/src/region.rs";
        assert_eq!(found(room, "// SAFETY: it is.\nlet a =\n    unsafe { b() };\n"), 0);
        assert_eq!(found(room, "// SAFETY: it is.\n\nunsafe { b() }\n"), 1);
        assert_eq!(found(room, "unsafe { b() }\n"), 1);
        assert_eq!(found(room, "/// # Safety\n///\n/// Hold it.\nunsafe fn a() {}\n"), 0);
    }

    #[test]
    fn every_root_forbids_it_and_a_crate_with_a_room_at_least_denies_it() {
        let check = |folder: &str, text: &str| {
            check(&Tree::of(&[(&format!("{folder}/src/lib.rs"), text)]), &[package(folder)]).len()
        };
        assert_eq!(check("cc", "//! A.\n#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(check("cc", "//! A.\n// #![forbid(unsafe_code)]\n"), 1);
        assert_eq!(check("cc", "//! A.\n#![deny(unsafe_code)]\n"), 1);
        assert_eq!(check("transport/device-roce", "//! A.\n#![deny(unsafe_code)]\n"), 0);
        assert_eq!(check("transport/device-roce", "//! A.\n"), 1);
        assert_eq!(check("transport/memory", "//! A.\n"), 0, "the whole crate is a room");
    }

    #[test]
    fn every_room_gives_its_reason() {
        assert!(ROOMS.iter().all(|room| room.why.len() > 20));
    }
}
