//! Answers GET requests of HTTP/1.1, over TLS or without, a few connections at a time, and nothing
//! else.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use towpath_secure::front::{Front, FrontSession, Place};

use super::text::CONTENT_TYPE;

/// Longest head of a request: a scraper's has a few hundred bytes.
const HEAD_BYTES_MAX: usize = 4096;

/// Connections at a time: more than scrapers that a server has; others wait in the backlog.
const CONNECTIONS_MAX: usize = 8;

/// TLS handshakes at a time, of which one address may have an eighth: half of the connections, so
/// that others come through beside one that only begins them.
pub(crate) const HANDSHAKES_MAX: usize = 4 * CONNECTIONS_MAX;

/// Time of a connection from its beginning to its end; a scraper waits 10 s as a rule.
const CONNECTION_MAX: Duration = Duration::from_secs(5);

/// A head and a body, of which HEAD gets the first.
fn answer(status: &str, content_type: &str, body: &str, is_head: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let len = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len}\r\n{allow}\
         Connection: close\r\n\r\n{}",
        if is_head { "" } else { body }
    )
    .into_bytes()
}

/// One client.
struct Connection {
    stream: TcpStream,
    tls: Option<Tls>,
    until: Instant,
    head: Vec<u8>,
    /// What is to be sent, and how much of it was.
    reply: Option<(Vec<u8>, usize)>,
}

/// What a client over TLS has more.
struct Tls {
    session: FrontSession,
    /// Of its handshake, as long as that is under way.
    place: Option<Place>,
}

impl Tls {
    /// None where as many handshakes are under way as may be, in all or from there.
    fn begin(front: &Front, from: SocketAddr) -> Option<Self> {
        let place = front.place(from.ip())?;
        Some(Self { session: front.accept().ok()?, place: Some(place) })
    }
}

/// Serves until `is_over`, which is asked when `bell` is readable, too. `page` makes what
/// `/metrics` gets.
///
/// # Errors
/// The system does not give a wait for files.
pub(crate) fn serve(
    (listener, tls): (&TcpListener, Option<&Front>),
    (bell, is_over): (BorrowedFd<'_>, impl Fn() -> bool),
    mut page: impl FnMut() -> String,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut connections: Vec<Connection> = Vec::new();
    while !is_over() {
        wait(listener, bell, &connections)?;
        let now = Instant::now();
        while connections.len() < CONNECTIONS_MAX
            && let Ok((stream, from)) = listener.accept()
        {
            let tls = tls.map(|front| Tls::begin(front, from));
            if let Some(tls) = tls.map_or(Some(None), |tls| tls.map(Some))
                && stream.set_nonblocking(true).is_ok()
            {
                let until = now + CONNECTION_MAX;
                connections.push(Connection { stream, tls, until, head: Vec::new(), reply: None });
            }
        }
        connections.retain_mut(|client| now < client.until && client.go_on(&mut page));
    }
    Ok(())
}

/// Waits until some of it can go on, the time of a connection is over, or the bell has rung.
fn wait(
    listener: &TcpListener,
    bell: BorrowedFd<'_>,
    connections: &[Connection],
) -> io::Result<()> {
    let mut files = Vec::with_capacity(2 + connections.len());
    files.push(PollFd::from_borrowed_fd(bell, PollFlags::IN));
    if connections.len() < CONNECTIONS_MAX {
        files.push(PollFd::new(listener, PollFlags::IN));
    }
    files.extend(connections.iter().map(|client| {
        let has_records = client.tls.as_ref().is_some_and(|tls| tls.session.wants_write());
        let writes = client.reply.is_some() || has_records;
        let for_what = if writes { PollFlags::OUT } else { PollFlags::IN };
        PollFd::new(&client.stream, for_what)
    }));
    let until = connections.iter().map(|client| client.until).min();
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
    match poll(&mut files, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Connection {
    /// Reads and writes what can be; false when it is at its end.
    fn go_on(&mut self, page: &mut impl FnMut() -> String) -> bool {
        if self.reply.is_none() {
            match self.read() {
                Ok(false) => return self.send_records().is_ok(),
                Ok(true) => self.reply = Some((reply_to(&self.head, page), 0)),
                Err(_) => {
                    // Of what is no TLS the client is told that, where it still listens.
                    let _ = self.send_records();
                    return false;
                }
            }
        }
        self.write().unwrap_or(false)
    }

    /// Sends what TLS has to say by itself.
    fn send_records(&mut self) -> io::Result<()> {
        let tls = self.tls.as_mut();
        tls.map_or(Ok(()), |tls| tls.session.flush(&mut &self.stream))
    }

    fn read_some(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.stream.read(bytes) };
        let came = tls.session.read(&mut &self.stream, bytes);
        if !tls.session.is_handshaking() {
            tls.place = None;
        }
        came
    }

    /// True when the head is whole, or too long.
    fn read(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 1024];
        loop {
            if is_whole(&self.head) || self.head.len() > HEAD_BYTES_MAX {
                return Ok(true);
            }
            match self.read_some(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.head.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// True while something is left.
    fn write(&mut self) -> io::Result<bool> {
        let Some((bytes, sent)) = &mut self.reply else { return Ok(true) };
        while *sent < bytes.len() {
            let rest = &bytes[*sent..];
            let written = match &mut self.tls {
                Some(tls) => match tls.session.write(&mut &self.stream, rest) {
                    // It has no room until the socket takes more.
                    Ok(0) => return Ok(true),
                    written => written,
                },
                None => self.stream.write(rest),
            };
            match written {
                Ok(0) => return Ok(false),
                Ok(count) => *sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let Some(Tls { session, .. }) = &mut self.tls else { return Ok(false) };
        session.close();
        session.flush(&mut &self.stream)?;
        Ok(session.wants_write())
    }
}

fn is_whole(head: &[u8]) -> bool {
    head.windows(4).any(|bytes| bytes == b"\r\n\r\n")
}

fn reply_to(head: &[u8], page: &mut impl FnMut() -> String) -> Vec<u8> {
    let (status, words) = match asked(head) {
        Some((method @ ("GET" | "HEAD"), "/metrics")) => {
            return answer("200 OK", CONTENT_TYPE, &page(), method == "HEAD");
        }
        Some(("GET" | "HEAD", _)) => ("404 Not Found", "try /metrics\n"),
        Some(_) => ("405 Method Not Allowed", "only GET and HEAD\n"),
        None if is_whole(head) => ("400 Bad Request", "this is no request of HTTP/1\n"),
        None => ("431 Request Header Fields Too Large", "the head of the request is too long\n"),
    };
    answer(status, "text/plain; charset=utf-8", words, head.starts_with(b"HEAD "))
}

/// Method and path, without what is asked of the path.
fn asked(head: &[u8]) -> Option<(&str, &str)> {
    if !is_whole(head) || head.len() > HEAD_BYTES_MAX {
        return None;
    }
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let is_http = version.starts_with("HTTP/1.") && words.next().is_none();
    let path = target.split('?').next()?;
    (is_http && path.starts_with('/')).then_some((method, path))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use towpath_wake::Bell;

    use super::*;

    fn reply(head: &[u8]) -> String {
        String::from_utf8(reply_to(head, &mut || "a 1\n".into())).expect("text")
    }

    #[test]
    fn a_get_is_answered_and_whatever_else_comes_is_refused_with_the_reason() {
        let get = reply(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(get.starts_with("HTTP/1.1 200 OK\r\n") && get.ends_with("\r\n\r\na 1\n"), "{get}");
        assert!(get.contains("Content-Length: 4\r\n") && get.contains("Connection: close"));
        let head = reply(b"HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        for (asked, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"GET /metrics HTTP/2\r\n\r\n", "400"),
            (b"GET http://a/metrics HTTP/1.1\r\n\r\n", "400"),
            (b"GET /metrics HTTP/1.1 x\r\n\r\n", "400"),
            (b"\xff\xfe /metrics HTTP/1.1\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
            (b"POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n", "405"),
            (&[b'a'; HEAD_BYTES_MAX + 1], "431"),
        ] {
            let found = reply(asked);
            assert!(found.starts_with(&format!("HTTP/1.1 {status} ")), "{found}");
        }
    }

    fn over_network(address: SocketAddr, asked: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).expect("somebody listens");
        stream.write_all(asked).expect("it is taken");
        let mut found = String::new();
        stream.read_to_string(&mut found).expect("an answer of text");
        found
    }

    #[test]
    fn clients_that_say_nothing_keep_nobody_from_being_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (is_over, bell) = (AtomicBool::new(false), Bell::new().expect("two sockets"));
        let waker = bell.waker();
        std::thread::scope(|scope| {
            let is_over = &is_over;
            scope.spawn(move || {
                let end = (bell.as_fd(), || is_over.load(Ordering::SeqCst));
                serve((&listener, None), end, || "x".repeat((1 << 20) + 1)).expect("it serves");
            });
            let silent: Vec<_> = (0..CONNECTIONS_MAX - 1)
                .map(|_| TcpStream::connect(address).expect("there is room"))
                .collect();
            for _ in 0..3 {
                let found = over_network(address, b"GET /metrics HTTP/1.1\r\n\r\n");
                assert!(found.starts_with("HTTP/1.1 200") && found.len() > 1 << 20);
            }
            drop(silent);
            // With nobody connected it sleeps until the bell rings.
            is_over.store(true, Ordering::SeqCst);
            waker.wake();
        });
    }
}
