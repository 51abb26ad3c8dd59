//! Runs of `towpath-lossy`, and what is skipped where no network namespace can be made.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

/// Set to `required`, as `.ci/run` does for root: nothing is skipped then.
const REQUIRED: &str = "TOWPATH_NETWORK";

/// What ends a run that hangs.
const PATIENCE: &str = "--for=120s";

/// One run at a time: each has two ends and a wire, and machines may have two cores.
static TURN: Mutex<()> = Mutex::new(());

/// A directory, and the turn of one test.
pub(crate) struct Rig {
    pub(crate) dir: TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// A run that is over.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) report: Value,
}

pub(crate) fn tool() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_towpath-lossy"));
    command.stdin(Stdio::null()).env_remove("TOWPATH_SERVER");
    command
}

/// A shell command that runs a role of this suite, see [`crate::roles`].
pub(crate) fn role(name: &str) -> String {
    let program = std::env::current_exe().expect("it runs");
    format!("exec {} --exact roles::{name} --ignored --nocapture", quoted(&program))
}

pub(crate) fn quoted(path: &Path) -> String {
    let path = path.to_str().expect("UTF-8");
    assert!(!path.contains('\''), "{path}");
    format!("'{path}'")
}

impl Rig {
    /// The turn of the test, or `None` where it is skipped.
    ///
    /// # Panics
    /// When it would be skipped and must not be.
    pub(crate) fn new() -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let tried = tool().args(["--quiet", "--", "true"]).output().expect("it starts");
        if !tried.status.success() {
            let why = String::from_utf8_lossy(&tried.stderr);
            assert!(
                std::env::var_os(REQUIRED).as_deref() != Some(OsStr::new("required")),
                "{REQUIRED}=required, and no namespace can be made: {why}"
            );
            eprintln!("skipped: {why}");
            return None;
        }
        Some(Self { dir: tempfile::tempdir().expect("room"), _turn: turn })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs the tool to its end.
    pub(crate) fn run(&self, flags: &[&str]) -> Ran {
        let report = self.path("report.json");
        let mut command = tool();
        command.arg(format!("--json={}", report.display())).arg(PATIENCE).args(flags);
        command.current_dir(self.dir.path());
        self.over(&command.output().expect("it starts"))
    }

    /// What a run left.
    pub(crate) fn over(&self, output: &Output) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let report = std::fs::read(self.path("report.json")).ok();
        let report = report.map(|json| serde_json::from_slice(&json).expect("a JSON object"));
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            report: report.unwrap_or(Value::Null),
        }
    }
}

impl Ran {
    /// It went well, or says all that is known.
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code, 0, "{}\n{}\n{}", self.stdout, self.stderr, self.report);
        self
    }

    /// A counter of both directions.
    pub(crate) fn counts(&self, field: &str) -> [u64; 2] {
        ["ab", "ba"].map(|way| {
            let count = self.report[way][field].as_u64();
            count.unwrap_or_else(|| panic!("no {way}.{field} in {}", self.report))
        })
    }

    /// Nothing of this kind befell any frame in a direction in which it should not have.
    pub(crate) fn is_accounted_for(&self) {
        let sum = |fields: &[&str]| {
            fields.iter().fold([0, 0], |sum: [u64; 2], field| {
                let counts = self.counts(field);
                [sum[0] + counts[0], sum[1] + counts[1]]
            })
        };
        let came = sum(&["frames", "duplicated"]);
        let went = sum(&[
            "passed",
            "lost",
            "lost_in_bursts",
            "lost_down",
            "queue_dropped",
            "too_large",
            "overflowed",
            "refused",
            "in_wire",
        ]);
        assert_eq!(came, went, "{}", self.report);
    }
}
