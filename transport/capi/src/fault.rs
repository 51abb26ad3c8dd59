//! Why a call failed: a code that a program can act on, and a text for people.

use crate::ffi::tow_status;
use std::error::Error;
use std::fmt::Write as _;
use towpath_transport::{
    AllocError, ChannelError, ConnectError, EndpointError, LaneError, ListenError, MemoryError,
    OpError, PollFdError, Refusal, SubmitError,
};

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) status: tow_status,
    pub(crate) text: String,
}

impl Fault {
    pub(crate) fn new(status: tow_status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    pub(crate) fn null(what: &str) -> Self {
        Self::new(tow_status::TOW_E_NULL, format!("{what} is NULL"))
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(tow_status::TOW_E_ARGUMENT, text)
    }

    pub(crate) fn stale(what: &str) -> Self {
        Self::new(
            tow_status::TOW_E_STALE,
            format!("this {what} is not, or no longer, one of this endpoint"),
        )
    }

    fn of(status: tow_status, error: &dyn Error) -> Self {
        Self::new(status, whole_text(error))
    }
}

/// What errors name of the interface for Rust, and what does the same for C.
const IN_C: [(&str, &str); 9] = [
    ("EndpointConfig::send_pools", "tow_config_send_pools"),
    ("EndpointConfig::whole_bytes_max, or streams,", "TOW_WHOLE_BYTES_MAX"),
    ("Event::Writable", "TOW_EVENT_WRITABLE"),
    ("ChannelOpened", "TOW_EVENT_CHANNEL_OPENED"),
    // A program in C has only buffers of its endpoint, and messages that came to another one.
    ("register it first (Endpoint::register, Segment::region), or copy", "copy"),
    ("(Endpoint::copy)", "(tow_send_copy)"),
    ("Endpoint::wait", "tow_wait"),
    (", or an EndpointHandle", ""),
    // Of handles alone, which C does not have.
    (" (writable_async), or use ChannelHandle::send or send_timeout, which wait", ""),
];

/// The same in the words of C.
fn in_c(mut text: String) -> String {
    for (rust, c) in IN_C {
        if text.contains(rust) {
            text = text.replace(rust, c);
        }
    }
    text
}

/// What an error says, with what caused it.
fn whole_text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Some errors say what caused them themselves.
        if !text.contains(&more) {
            // Writing to a string does not fail.
            let _ = write!(text, ": {more}");
        }
        cause = error.source();
    }
    in_c(text)
}

impl From<EndpointError> for Fault {
    fn from(error: EndpointError) -> Self {
        let status = match &error {
            EndpointError::Memory(_) => tow_status::TOW_E_NO_MEMORY,
            EndpointError::Mtu { .. } | EndpointError::TooLarge { .. } => {
                tow_status::TOW_E_ARGUMENT
            }
            EndpointError::TooManyRegions { .. } => tow_status::TOW_E_LIMIT,
            EndpointError::NoCarrier { .. } => tow_status::TOW_E_UNSUPPORTED,
            _ => tow_status::TOW_E_SYSTEM,
        };
        Self::of(status, &error)
    }
}

impl From<ListenError> for Fault {
    fn from(error: ListenError) -> Self {
        let status = match &error {
            ListenError::TooMany { .. } => tow_status::TOW_E_LIMIT,
            ListenError::AddressNotLocal(_) => tow_status::TOW_E_ARGUMENT,
            _ => tow_status::TOW_E_SYSTEM,
        };
        Self::of(status, &error)
    }
}

impl From<&ConnectError> for Fault {
    fn from(error: &ConnectError) -> Self {
        let status = match error {
            ConnectError::TooMany { .. } => tow_status::TOW_E_LIMIT,
            ConnectError::Dial { .. } | ConnectError::Broken { .. } => {
                tow_status::TOW_E_UNREACHABLE
            }
            ConnectError::Timeout { .. } => tow_status::TOW_E_TIMEOUT,
            ConnectError::Full { .. } | ConnectError::Refused { refusal: Refusal::Full, .. } => {
                tow_status::TOW_E_FULL
            }
            ConnectError::Local { .. } => tow_status::TOW_E_SYSTEM,
            _ => tow_status::TOW_E_REFUSED,
        };
        Self::of(status, error)
    }
}

impl From<ChannelError> for Fault {
    fn from(error: ChannelError) -> Self {
        use towpath_transport::OpenError;
        let status = match error {
            ChannelError::NoSuchLink | ChannelError::Link(OpenError::Down) => {
                tow_status::TOW_E_STALE
            }
            ChannelError::Link(OpenError::NotOpen) => tow_status::TOW_E_NOT_OPEN,
            _ => tow_status::TOW_E_LIMIT,
        };
        Self::of(status, &error)
    }
}

impl From<SubmitError> for Fault {
    fn from(error: SubmitError) -> Self {
        let status = match error {
            SubmitError::NoSuchLink | SubmitError::ShutDown => tow_status::TOW_E_STALE,
            SubmitError::NotOpen(_) => tow_status::TOW_E_NOT_OPEN,
            SubmitError::TooLong { .. } => tow_status::TOW_E_TOO_LONG,
            SubmitError::EmptySegment | SubmitError::NotRegistered { .. } => {
                tow_status::TOW_E_ARGUMENT
            }
            _ => tow_status::TOW_E_FULL,
        };
        Self::of(status, &error)
    }
}

impl From<AllocError> for Fault {
    fn from(error: AllocError) -> Self {
        let status = match error {
            AllocError::TooLong { .. } => tow_status::TOW_E_TOO_LONG,
            AllocError::AllOut { .. } => tow_status::TOW_E_NO_BUFFER,
            _ => tow_status::TOW_E_NO_MEMORY,
        };
        Self::of(status, &error)
    }
}

impl From<MemoryError> for Fault {
    fn from(error: MemoryError) -> Self {
        let status = match error {
            MemoryError::OutOfMemory { .. } => tow_status::TOW_E_NO_MEMORY,
            _ => tow_status::TOW_E_ARGUMENT,
        };
        Self::of(status, &error)
    }
}

impl From<LaneError> for Fault {
    fn from(error: LaneError) -> Self {
        let status = match error {
            LaneError::NoSuchLink | LaneError::Op(OpError::LinkDown | OpError::NoSuchGrant) => {
                tow_status::TOW_E_STALE
            }
            LaneError::TooManyLanes { .. } => tow_status::TOW_E_LIMIT,
            LaneError::Op(OpError::Full { .. }) => tow_status::TOW_E_FULL,
            LaneError::Op(OpError::Rights { .. } | OpError::Range { .. }) => {
                tow_status::TOW_E_DENIED
            }
            LaneError::Memory(_) => tow_status::TOW_E_NO_MEMORY,
            LaneError::Verb(_) => tow_status::TOW_E_SYSTEM,
            _ => tow_status::TOW_E_ARGUMENT,
        };
        Self::of(status, &error)
    }
}

impl From<PollFdError> for Fault {
    fn from(error: PollFdError) -> Self {
        let status = match &error {
            PollFdError::System(_) => tow_status::TOW_E_SYSTEM,
            _ => tow_status::TOW_E_UNSUPPORTED,
        };
        Self::of(status, &error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of errors in a file, as they are written: the literals of `#[error(...)]`.
    fn texts(source: &str) -> Vec<String> {
        let attributes = source.split("#[error(").skip(1);
        let literals = attributes.filter_map(|rest| rest.split_once(")]\n").map(|(text, _)| text));
        // A line that goes on in the next loses the blanks between.
        literals
            .map(|text| {
                let lines = text.lines().map(|line| line.trim().trim_end_matches('\\'));
                lines.collect::<Vec<_>>().join(" ").replace("  ", " ")
            })
            .collect()
    }

    #[test]
    fn no_text_names_things_of_rust() {
        let (mut folders, mut seen) = (vec![std::path::PathBuf::from("../endpoint/src")], 0);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("the repository") {
                let path = entry.expect("the repository").path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let source = std::fs::read_to_string(&path).expect("text");
                for text in texts(&source) {
                    seen += 1;
                    let text = in_c(text);
                    // Arguments behind the literal are not shown.
                    let shown = text.rsplit_once('"').map_or(text.as_str(), |(shown, _)| shown);
                    // Addresses have "::" as well, and no name behind it.
                    let mut behind = shown.split("::").skip(1);
                    let is_path = behind.any(|rest| rest.starts_with(char::is_alphabetic));
                    assert!(!is_path, "{}: {text}", path.display());
                    for word in ["Handle", "Config", "ChannelOpened"] {
                        assert!(!shown.contains(word), "{}: {text}", path.display());
                    }
                }
            }
        }
        assert!(seen > 50, "{seen} texts were looked at");
        let long = Fault::from(SubmitError::TooLong { bytes: 300_000, max: 262_144 });
        assert!(long.text.contains("TOW_WHOLE_BYTES_MAX at the peer"), "{}", long.text);
    }

    #[test]
    fn a_fault_says_what_caused_it_once() {
        let source = std::io::Error::other("the cable is out");
        let addr = ([127, 0, 0, 1], 7).into();
        let fault = Fault::from(&ConnectError::Dial { addr, source });
        assert_eq!(fault.status, tow_status::TOW_E_UNREACHABLE);
        assert!(fault.text.ends_with("is the peer listening there?: the cable is out"));
        let fault = Fault::from(LaneError::Op(OpError::Misaligned));
        assert_eq!(fault.status, tow_status::TOW_E_ARGUMENT);
        assert_eq!(fault.text, OpError::Misaligned.to_string());
    }
}
