//! One thing that a check found, and how findings are shown.

use crate::failure::Failure;
use std::fmt;

/// A place in a file and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The file, relative to the root of the repository.
    pub(crate) path: String,
    /// The line, counted from 1; 0 when the file as a whole is meant.
    pub(crate) line: usize,
    /// What is wrong and what to do about it.
    pub(crate) message: String,
    /// Whether the gate lets it pass.
    pub(crate) warning: bool,
}

impl Finding {
    /// A finding that fails the gate.
    pub(crate) fn error(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into(), warning: false }
    }

    /// A finding that is only shown.
    pub(crate) fn warning(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { warning: true, ..Self::error(path, line, message) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.warning { "warning" } else { "error" };
        match self.line {
            0 => write!(f, "{kind}: {}: {}", self.path, self.message),
            line => write!(f, "{kind}: {}:{line}: {}", self.path, self.message),
        }
    }
}

/// Shows the findings in the order of their places; fails when one of them is an error.
pub(crate) fn report(mut findings: Vec<Finding>, command: &'static str) -> Result<(), Failure> {
    findings.sort();
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.iter().filter(|finding| !finding.warning).count() {
        0 => Ok(()),
        count => Err(Failure::Findings { count, command }),
    }
}
