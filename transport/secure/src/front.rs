//! TLS for listeners that anybody may connect to: who serves shows a certificate, and asks for
//! none.
//!
//! Handshakes that are under way are bounded: in number by a [`Place`] each, which is given back
//! when it is dropped, with a share for each address; and in time by the owner of the connection,
//! who closes it [`HANDSHAKE_NS`](crate::limits::HANDSHAKE_NS) after it began.

use crate::limits::{CERTIFICATES_MAX, FRONT_BUFFER_BYTES, FRONT_FILE_BYTES_MAX, FRONT_SHARES};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Why a certificate and its key do not serve.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FrontFault {
    /// No certificate, or too many.
    #[error(
        "there is no `CERTIFICATE` in PEM in it, or more than {CERTIFICATES_MAX}: it has to have \
         the server's own certificate first, then those between it and its authority"
    )]
    Chain,
    /// No key.
    #[error(
        "there is no private key in PEM in it (`PRIVATE KEY`, `EC PRIVATE KEY` or `RSA PRIVATE \
         KEY`): give it the key that the certificate was made for, without a passphrase"
    )]
    Key,
    /// Key and certificate do not go together, or are of a kind that cannot be used.
    #[error(
        "the key is not that of the first certificate, or of a kind that cannot be used (Ed25519, \
         ECDSA P-256 and P-384, RSA with 2,048 bits or more): {0}"
    )]
    Pair(rustls::Error),
    /// The file is longer than any.
    #[error("it has more than {FRONT_FILE_BYTES_MAX} bytes: that is neither a key nor a chain")]
    TooLong,
    /// The system does not give the file.
    #[error("it cannot be read: {0}; the user that the server runs as must be allowed to")]
    Unreadable(String),
}

/// Why a certificate and its key do not serve, and in which file the fault is.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}: {fault}", .file.display())]
pub struct FrontError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong.
    pub fault: FrontFault,
}

/// A certificate that connections are served with, and the handshakes that are under way.
#[derive(Clone, Debug)]
pub struct Front {
    config: Arc<ServerConfig>,
    places: Arc<Places>,
}

/// Handshakes that are under way, all and by address.
#[derive(Debug)]
struct Places {
    most: usize,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

impl Places {
    fn taken(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one handshake; dropping it gives it back.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    source: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(count) = taken.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.source);
            }
        }
    }
}

impl Front {
    /// With the certificates and the key of these files, and at most so many handshakes at a time.
    ///
    /// # Errors
    /// [`FrontError`], which names the file.
    pub fn from_files(chain: &Path, key: &Path, most: usize) -> Result<Self, FrontError> {
        let of = |file: &Path| {
            let file = file.to_owned();
            move |fault| FrontError { file, fault }
        };
        let chain_bytes = read(chain).map_err(of(chain))?;
        let certificates = certificates(&chain_bytes).map_err(of(chain))?;
        let key_bytes = zeroize::Zeroizing::new(read(key).map_err(of(key))?);
        Self::new(certificates, &key_bytes, most).map_err(of(key))
    }

    /// The same of bytes.
    ///
    /// # Errors
    /// [`FrontFault`].
    pub fn from_pem(chain: &[u8], key: &[u8], most: usize) -> Result<Self, FrontFault> {
        Self::new(certificates(chain)?, key, most)
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: &[u8],
        most: usize,
    ) -> Result<Self, FrontFault> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| FrontFault::Key)?;
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(FrontFault::Pair)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(FrontFault::Pair)?;
        let places = Arc::new(Places { most, taken: Mutex::default() });
        Ok(Self { config: Arc::new(config), places })
    }

    /// A place for the handshake of a connection from there; none where as many are under way as
    /// may be, in all or from that address.
    #[must_use]
    pub fn place(&self, source: IpAddr) -> Option<Place> {
        let source = source.to_canonical();
        let mut taken = self.places.taken();
        let (all, own) =
            (taken.values().sum::<usize>(), taken.get(&source).copied().unwrap_or_default());
        let share = self.places.most.div_ceil(FRONT_SHARES);
        if all >= self.places.most || own >= share {
            return None;
        }
        taken.insert(source, own + 1);
        drop(taken);
        Some(Place { places: Arc::clone(&self.places), source })
    }

    /// Begins a handshake, whose bytes its owner carries.
    ///
    /// # Errors
    /// There are no random bytes.
    pub fn accept(&self) -> io::Result<FrontSession> {
        let mut tls = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(FRONT_BUFFER_BYTES));
        Ok(FrontSession { tls: Box::new(tls), is_over: false })
    }
}

fn read(file: &Path) -> Result<Vec<u8>, FrontFault> {
    let most = FRONT_FILE_BYTES_MAX as u64;
    let mut bytes = Vec::new();
    let opened = File::open(file).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    match opened {
        Ok(_) if bytes.len() as u64 > most => Err(FrontFault::TooLong),
        Ok(_) => Ok(bytes),
        Err(error) => Err(FrontFault::Unreadable(error.to_string())),
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, FrontFault> {
    let found = CertificateDer::pem_slice_iter(pem).take(CERTIFICATES_MAX + 1);
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|_| FrontFault::Chain)?;
    let is_good = (1..=CERTIFICATES_MAX).contains(&found.len());
    if is_good { Ok(found) } else { Err(FrontFault::Chain) }
}

/// One connection's TLS, over a socket that does not block.
#[derive(Debug)]
pub struct FrontSession {
    tls: Box<ServerConnection>,
    /// The client sends no more.
    is_over: bool,
}

impl FrontSession {
    /// Whether the handshake is still under way.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether something is to go that the socket has not taken yet.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Reads what has come, as `read` of a socket does; of `out` with 64 KiB no part of what was
    /// read stays here. What is to be answered of the handshake waits for [`flush`](Self::flush).
    ///
    /// # Errors
    /// Of the socket; `WouldBlock` where there is nothing yet; `InvalidData` where what came is no
    /// TLS, or was changed on its way: then the alert that says so waits to be flushed.
    pub fn read(&mut self, socket: &mut impl Read, out: &mut [u8]) -> io::Result<usize> {
        let mut count = self.take(out)?;
        // One read of TLS brings a few records at most.
        while !self.is_over && count <= out.len() / 2 {
            match self.tls.read_tls(socket) {
                Ok(0) => self.is_over = true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // It comes again.
                Err(_) if count > 0 => break,
                Err(error) => return Err(error),
            }
            let state = self.tls.process_new_packets();
            let state = state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.is_over |= state.peer_has_closed();
            count += self.take(&mut out[count..])?;
        }
        match count {
            0 if !self.is_over => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    /// What is decrypted and was not taken.
    fn take(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while count < out.len() {
            match self.tls.reader().read(&mut out[count..]) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The client is gone without a word; what it sent before is served.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    /// Takes bytes to be sent, as many as there is room for, and sends what the socket takes.
    ///
    /// # Errors
    /// Of the socket.
    pub fn write(&mut self, socket: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
        // What is written before the handshake is over waits for it.
        let count = if bytes.is_empty() { 0 } else { self.tls.writer().write(bytes)? };
        self.flush(socket)?;
        Ok(count)
    }

    /// Sends what the socket takes of what is to go.
    ///
    /// # Errors
    /// Of the socket.
    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Says that nothing more follows, behind what is to go.
    pub fn close(&mut self) {
        self.tls.send_close_notify();
    }
}
