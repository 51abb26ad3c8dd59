//! One call of etcd's HTTP gateway, at whichever member answers.

use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::Agent;

use super::json::{ErrorBody, Streamed};
use crate::meta::MetaError;

/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// How long an answer may take: etcd itself gives up after 7 s or sooner.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// How long a stream may be silent; then it is asked for again, since a member that is gone does
/// not say so.
const SILENCE_LIMIT: Duration = Duration::from_secs(20);

/// Bytes of an answer, or of a part of a stream, at most: a page of the longest values in base64.
const ANSWER_BYTES_MAX: u64 = 128 << 20;

/// gRPC's numbers of errors.
const NOT_FOUND: u32 = 5;
const INVALID_ARGUMENT: u32 = 3;
const RESOURCE_EXHAUSTED: u32 = 8;
const OUT_OF_RANGE: u32 = 11;

/// Whether an operation that was perhaps done must be said to be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changes {
    /// It may change something.
    Something,
    /// It is done again without harm.
    Nothing,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// What it names is not there.
    NotFound,
    /// As for an operation.
    Meta(MetaError),
}

/// The members of an etcd, and connections to them.
#[derive(Debug)]
pub(super) struct Members {
    agent: Agent,
    addresses: Vec<String>,
    /// The one that answered last.
    current: AtomicUsize,
}

impl Members {
    /// Members by their addresses, such as `http://10.0.0.1:2379`.
    pub(super) fn new(addresses: Vec<String>) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .no_delay(true)
            .timeout_connect(Some(CONNECT_LIMIT))
            .timeout_recv_response(Some(CALL_LIMIT))
            .timeout_per_read(Some(SILENCE_LIMIT))
            .build();
        Self { agent: config.into(), addresses, current: AtomicUsize::new(0) }
    }

    /// The answer to a request.
    pub(super) fn call<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
        changes: Changes,
    ) -> Result<T, CallError> {
        let body = self.answer(path, request, changes)?;
        parsed(&body)
    }

    /// The first part of the answer to a request of which a stream is the answer.
    pub(super) fn call_first<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<T, CallError> {
        let body = self.answer(path, request, Changes::Nothing)?;
        let first = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let Streamed { result, error } = parsed(first)?;
        result.ok_or_else(|| unavailable(format!("{error:?}")))
    }

    /// What is at a path.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CallError> {
        let get = |address: &str| self.agent.get(format!("{address}{path}")).call();
        parsed(&body_of(self.at_some(Changes::Nothing, get)?, Changes::Nothing)?)
    }

    /// The parts of the answer to a request, one after another, until one of them is enough.
    pub(super) fn stream<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
        mut each: impl FnMut(T) -> Result<(), CallError>,
    ) -> Result<(), CallError> {
        let response = self.post(path, request, Changes::Nothing)?;
        let (head, body) = response.into_parts();
        let config = body.into_with_config().limit(u64::MAX);
        let mut lines = BufReader::new(config.reader());
        loop {
            let mut line = Vec::new();
            let read = lines.by_ref().take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line);
            read.map_err(|error| unavailable(error.to_string()))?;
            if line.is_empty() {
                return Err(unavailable("the stream has ended".into()));
            }
            if !head.status.is_success() {
                return Err(refusal(&line, Changes::Nothing));
            }
            let Streamed { result, error } = parsed(&line)?;
            each(result.ok_or_else(|| unavailable(format!("{error:?}")))?)?;
        }
    }

    fn answer(
        &self,
        path: &str,
        request: &impl Serialize,
        changes: Changes,
    ) -> Result<Vec<u8>, CallError> {
        body_of(self.post(path, request, changes)?, changes)
    }

    fn post(
        &self,
        path: &str,
        request: &impl Serialize,
        changes: Changes,
    ) -> Result<ureq::http::Response<ureq::Body>, CallError> {
        let request = serde_json::to_vec(request);
        let request = request.map_err(|error| unavailable(error.to_string()))?;
        self.at_some(changes, |address| {
            let post = self.agent.post(format!("{address}{path}"));
            post.header("content-type", "application/json").send(&request[..])
        })
    }

    /// The answer of the first member that is reached. One that was reached and did not answer is
    /// followed by another one only where that does no harm.
    fn at_some(
        &self,
        changes: Changes,
        ask: impl Fn(&str) -> Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<ureq::http::Response<ureq::Body>, CallError> {
        let first = self.current.load(Ordering::Relaxed);
        let mut last = unavailable("no member is named".into());
        for turn in 0..self.addresses.len() {
            let member = (first + turn) % self.addresses.len();
            match ask(&self.addresses[member]) {
                Ok(response) => {
                    self.current.store(member, Ordering::Relaxed);
                    return Ok(response);
                }
                Err(error) if changes == Changes::Something && !is_before_all(&error) => {
                    return Err(not_known(changes, error.to_string()));
                }
                Err(error) => last = unavailable(error.to_string()),
            }
        }
        Err(last)
    }
}

/// The body of an answer that is no refusal.
fn body_of(
    mut response: ureq::http::Response<ureq::Body>,
    changes: Changes,
) -> Result<Vec<u8>, CallError> {
    let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
    let body = body.map_err(|error| not_known(changes, error.to_string()))?;
    match response.status().is_success() {
        true => Ok(body),
        false => Err(refusal(&body, changes)),
    }
}

/// Whether a request that failed so was not sent.
fn is_before_all(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed | ureq::Error::BadUri(_) => true,
        ureq::Error::Timeout(step) => {
            matches!(step, ureq::Timeout::Connect | ureq::Timeout::Resolve)
        }
        ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, CallError> {
    let parsed = serde_json::from_slice(body);
    parsed.map_err(|error| CallError::Meta(MetaError::Damaged(format!("its answer: {error}"))))
}

/// What an error's body says.
fn refusal(body: &[u8], changes: Changes) -> CallError {
    let body: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
    match body.code {
        NOT_FOUND => CallError::NotFound,
        INVALID_ARGUMENT | OUT_OF_RANGE => {
            CallError::Meta(MetaError::Unavailable(format!("it refuses: {}", body.message)))
        }
        RESOURCE_EXHAUSTED => unavailable(body.message),
        _ => not_known(changes, body.message),
    }
}

fn not_known(changes: Changes, why: String) -> CallError {
    match changes {
        Changes::Something => CallError::Meta(MetaError::Unknown(why)),
        Changes::Nothing => unavailable(why),
    }
}

pub(super) fn unavailable(why: String) -> CallError {
    CallError::Meta(MetaError::Unavailable(why))
}
