//! What a server without a client uses, by the kernel's own account.

use super::seen::Seen;
use crate::failure::Failure;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// A server is not idle while it starts.
const SETTLE: Duration = Duration::from_secs(2);

/// Bytes of a block of `st_blocks` (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// What all threads of a process have used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Usage {
    cpu_ns: u64,
    /// How often a thread had gone to sleep and was woken.
    wakeups: u64,
}

/// Watches a process for so many seconds; `dir` is its store.
pub(super) fn watch(pid: u32, dir: &Path, seconds: u32) -> Result<Seen, Failure> {
    thread::sleep(SETTLE);
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let failed = |source| Failure::File { path: folder.clone(), source };
    let (began, before) = (Instant::now(), usage(&folder).map_err(failed)?);
    thread::sleep(Duration::from_secs(u64::from(seconds)));
    let (span, after) = (began.elapsed().as_secs_f64(), usage(&folder).map_err(failed)?);
    let status = fs::read_to_string(folder.join("status")).map_err(failed)?;
    let rss_kib =
        field(&status, "VmRSS").ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
    let stored = allocated(dir).map_err(|source| Failure::File { path: dir.into(), source })?;
    Ok(Seen(vec![
        ("cpu_ms_per_s", after.cpu_ns.saturating_sub(before.cpu_ns) as f64 / 1e6 / span),
        ("wakeups_per_s", after.wakeups.saturating_sub(before.wakeups) as f64 / span),
        ("rss_mib", rss_kib as f64 / 1024.0),
        ("du_mib", stored as f64 / f64::from(1 << 20)),
    ]))
}

fn usage(process: &Path) -> io::Result<Usage> {
    let mut all = Usage::default();
    for task in fs::read_dir(process.join("task"))? {
        let task = task?.path();
        let read = |name| fs::read_to_string(task.join(name));
        // A thread may end between the two looks.
        let (Ok(time), Ok(status)) = (read("schedstat"), read("status")) else { continue };
        // Time on a processor comes first (Documentation/scheduler/sched-stats.rst).
        let time = time.split_whitespace().next().and_then(|word| word.parse().ok());
        let switches = field(&status, "voluntary_ctxt_switches");
        let (Some(time), Some(switches)): (Option<u64>, _) = (time, switches) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        all = Usage { cpu_ns: all.cpu_ns + time, wakeups: all.wakeups + switches };
    }
    Ok(all)
}

/// The first number of a line of `/proc/PID/status`.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes that a folder takes on its disk, as `du` has them.
fn allocated(path: &Path) -> io::Result<u64> {
    let metadata = fs::symlink_metadata(path)?;
    let own = metadata.blocks() * BLOCK_BYTES;
    if !metadata.is_dir() {
        return Ok(own);
    }
    fs::read_dir(path)?.try_fold(own, |sum, entry| Ok(sum + allocated(&entry?.path())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;
    use std::io::Write;
    use std::process::Stdio;

    #[test]
    fn a_line_of_the_status_is_found_by_its_whole_name() {
        let status = "VmRSS:\t  2048 kB\nvoluntary_ctxt_switches:\t7\n\
                      nonvoluntary_ctxt_switches:\t35\n";
        assert_eq!(field(status, "VmRSS"), Some(2048));
        assert_eq!(field(status, "voluntary_ctxt_switches"), Some(7));
        assert_eq!(field(status, "VmR"), None);
    }

    #[test]
    fn a_folder_takes_what_its_files_take_and_holes_take_nothing() {
        let folder = std::env::temp_dir().join(format!("towpath idle {}", std::process::id()));
        fs::create_dir_all(folder.join("deep")).unwrap();
        let empty = allocated(&folder).unwrap();
        fs::File::create(folder.join("hole")).unwrap().set_len(64 << 20).unwrap();
        assert!(allocated(&folder).unwrap() < empty + (1 << 20));
        fs::write(folder.join("deep").join("full"), vec![1; 4 << 20]).unwrap();
        fs::File::open(folder.join("deep").join("full")).unwrap().sync_all().unwrap();
        let full = allocated(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(full >= empty + (4 << 20), "{full}");
    }

    #[test]
    fn this_process_has_used_something() {
        let own = usage(Path::new("/proc/self")).unwrap();
        assert!(own.cpu_ns > 0, "{own:?}");
    }

    #[test]
    fn sleeping_wakes_a_process_up() {
        let mut child = process::shell("read begin; sleep 0.01; sleep 0.01; read end")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let folder = PathBuf::from(format!("/proc/{}", child.id()));
        let before = usage(&folder).unwrap().wakeups;
        child.stdin.as_mut().unwrap().write_all(b"begin\n").unwrap();
        // It waits for what it starts, and for its next line.
        while usage(&folder).unwrap().wakeups < before + 2 {
            thread::sleep(Duration::from_millis(1));
        }
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
