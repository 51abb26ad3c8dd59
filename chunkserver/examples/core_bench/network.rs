//! The same over loopback: a chunk server in a process of its own, and one without a store.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use towpath_base::Prng;
use towpath_chunkserver::daemon::{self, DaemonConfig, DriveDisk, StopFlag};
use towpath_chunkserver::store::SLICE_BYTES;

use super::arguments::Arguments;
use super::link::connect;
use super::without_store::{Outcome, serve_nothing};
use super::{CHUNK, Case, slices};

/// What serves the requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Serves {
    /// Nothing: reads come from memory, and writes are checked and dropped.
    Nothing,
    /// The store, which a thread of its own drives.
    Store,
    /// The store, which the network thread drives.
    Inline,
}

impl Serves {
    /// In the order of the columns.
    pub(crate) const ALL: [Self; 3] = [Self::Store, Self::Inline, Self::Nothing];

    /// The word that has this program serve.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Nothing => "--serve-nothing",
            Self::Store => "--serve-store",
            Self::Inline => "--serve-inline",
        }
    }
}

fn config(folder: &Path, drive_disk: DriveDisk) -> DaemonConfig {
    DaemonConfig::default().with(|config| {
        config.network.workers = Some(1);
        config.network.drive_disk = drive_disk;
        config.network.listen = (Ipv4Addr::LOCALHOST, 0).into();
        config.store.data_dir = folder.into();
        config.telemetry.log = "warn".into();
    })
}

/// Serves until this process is ended; says first where it listens.
pub(crate) fn serve(serves: Serves, folder: &Path) -> Outcome<()> {
    let drive_disk = match serves {
        Serves::Inline => DriveDisk::Inline,
        Serves::Nothing | Serves::Store => DriveDisk::Thread,
    };
    let config = config(folder, drive_disk);
    match serves {
        Serves::Store | Serves::Inline => {
            let ready = |ready: &daemon::Ready| {
                println!("{}", ready.listening);
                Ok(())
            };
            daemon::run(&config, &StopFlag::new(), daemon::udp_devices, ready)?;
            Ok(())
        }
        Serves::Nothing => serve_nothing(&config),
    }
}

/// A server in a process of its own, ended when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(serves: Serves, folder: &Path) -> Outcome<(Server, SocketAddr)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(serves.word()).arg(folder).stdout(Stdio::piped());
    let mut server = Server(command.spawn()?);
    let mut line = String::new();
    let out = server.0.stdout.as_mut().ok_or("no stdout")?;
    BufReader::new(out).read_line(&mut line)?;
    let addr = line.trim().parse().map_err(|_| "the server does not start")?;
    Ok((server, addr))
}

/// Keeps `case.depth` requests under way until the time is over, and counts them from the middle
/// on: first both ends touch their memory for the first time. Requests a second.
pub(crate) fn run(serves: Serves, case: Case, settings: &Arguments, seed: u64) -> Outcome<f64> {
    let (_server, addr) = start(serves, &settings.path)?;
    let (mut endpoint, mut chunks) = connect(addr)?;
    let (mut prng, count) = (Prng::new(seed), slices(settings.page_count));
    let (mut done, mut under_way) = (0u64, 0);
    let (mut began, mut is_warm) = (Instant::now(), false);
    while began.elapsed() < settings.span || under_way > 0 {
        if !is_warm && began.elapsed() >= settings.span / 2 {
            (began, is_warm, done) = (Instant::now(), true, 0);
        }
        while under_way < case.depth && began.elapsed() < settings.span {
            let offset = prng.below(count) * SLICE_BYTES as u64;
            if case.is_write {
                let mut data = endpoint.alloc(SLICE_BYTES)?;
                data.set_len(SLICE_BYTES)?;
                chunks.start_write(&mut endpoint, CHUNK, offset, data)?;
            } else {
                chunks.start_read(&mut endpoint, CHUNK, offset, SLICE_BYTES)?;
            }
            under_way += 1;
        }
        endpoint.turn(|endpoint, event| drop(chunks.on_event(endpoint, event)));
        chunks.expire(&mut endpoint);
        while let Some(ended) = chunks.poll(&mut endpoint) {
            ended.result?;
            (done, under_way) = (done + 1, under_way - 1);
        }
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}
