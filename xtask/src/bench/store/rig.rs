//! One measurement: a server or fio, on a fresh or an aged store.

use super::case::{Case, Has, Load, Place, Side};
use super::seen::Seen;
use super::server::Server;
use super::{Amount, Ground, fio, idle};
use crate::failure::Failure;
use crate::{process, workspace};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// How often each page of an aged store was overwritten.
const AGE: &str = "5";

/// What `towpath put` stores, in MiB, and the same for the network: all caches hold it.
const PUT_MIB: u32 = 64;
const NETWORK_MIB: u32 = 16;

/// Where memory is a file system.
pub(in crate::bench) const MEMORY: &str = "/dev/shm";

/// What the measurements of a run share.
pub(super) struct Rig<'a> {
    ground: &'a Ground<'a>,
    seconds: u32,
    disk: Folder,
    memory: Folder,
    has: Has,
    /// Made when they are needed first.
    file: Option<fio::File>,
    nbd: Option<fio::Nbd>,
    /// The chunk of the aged store, on the disk and in memory.
    aged: [Option<String>; 2],
}

/// A folder that goes with this.
pub(in crate::bench) struct Folder(PathBuf);

impl Folder {
    pub(in crate::bench) fn in_folder(parent: &Path) -> Result<Self, Failure> {
        let path = parent.join(format!("bench-store-{}", std::process::id()));
        let made = fs::create_dir_all(&path);
        made.map_err(|source| Failure::File { path: path.clone(), source })?;
        Ok(Self(path))
    }

    pub(in crate::bench) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl<'a> Rig<'a> {
    pub(super) fn new(ground: &'a Ground<'a>, seconds: u32, has: Has) -> Result<Self, Failure> {
        let target = workspace::target_directory(&workspace::root())?;
        let disk = Folder::in_folder(ground.options.dir.as_deref().unwrap_or(&target))?;
        let memory = Folder::in_folder(Path::new(MEMORY))?;
        let (file, nbd, aged) = (None, None, [None, None]);
        Ok(Self { ground, seconds, disk, memory, has, file, nbd, aged })
    }

    /// What is run, for those who read the table or the drawing.
    pub(super) fn ran(&self, amount: Amount) -> String {
        format!(
            "towpath bench store on {} MiB against a server with default settings, from {}; fio on \
             a file of the same size in the same folder; {} s each, medians of {} rounds in turn",
            self.ground.options.aged_size,
            self.ground.programs.folder().display(),
            amount.seconds,
            amount.rounds,
        )
    }

    /// What these cases leave out here, and why.
    pub(super) fn not_measured(&self, cases: &[Case]) -> String {
        let mut text = String::new();
        if cases.iter().all(|case| case.place == Place::Disk) {
            return text;
        }
        if !self.has.nbd {
            text += "not measured: nbdkit beside the cases in memory, which needs nbdkit and a fio \
                     with the engine nbd (apt-get install fio nbdkit)\n";
        }
        if !self.has.against {
            text +=
                "not measured: whole puts beside another build, whose programs --against names\n";
        }
        text
    }

    /// Does the requests of a case by one side.
    pub(super) fn load(&mut self, case: &Case, load: Load, side: Side) -> Result<Seen, Failure> {
        let programs = self.ground.programs.folder();
        let mib = self.ground.options.aged_size;
        match side {
            Side::Fio => {
                let made = self.file.take().map_or_else(
                    || fio::File::make(self.disk.0.join("file"), mib),
                    Ok::<_, Failure>,
                )?;
                self.file.insert(made).load(load, self.seconds)
            }
            Side::Nbd => {
                let started = self
                    .nbd
                    .take()
                    .map_or_else(|| fio::Nbd::start(&self.memory.0, mib), Ok::<_, Failure>)?;
                self.nbd.insert(started).load(load, self.seconds)
            }
            Side::Network => self.on_fresh(Place::Memory, load, NETWORK_MIB),
            Side::Aged => self.on_aged(case.place, load),
            Side::Put => self.put(programs, load),
            Side::Before => self.put(self.ground.against.unwrap_or(programs), load),
            Side::Fresh | Side::Idle => self.on_fresh(case.place, load, mib),
        }
    }

    /// What a server with an empty store uses.
    pub(super) fn idle(&self) -> Result<Seen, Failure> {
        let dir = self.fresh_dir(Place::Disk)?;
        let server = Server::start(self.ground.programs.folder(), &dir)?;
        let seen = idle::watch(server.pid(), &dir, self.seconds)?;
        server.stop()?;
        Ok(seen)
    }

    fn on_fresh(&self, place: Place, load: Load, mib: u32) -> Result<Seen, Failure> {
        let dir = self.fresh_dir(place)?;
        let server = Server::start(self.ground.programs.folder(), &dir)?;
        let seen = self.load_on(&server, load, mib, None)?;
        server.stop()?;
        workspace::remove_dir(&dir)?;
        Ok(seen)
    }

    fn on_aged(&mut self, place: Place, load: Load) -> Result<Seen, Failure> {
        let programs = self.ground.programs.folder();
        let mib = self.ground.options.aged_size;
        let (folder, aged) = match place {
            Place::Disk => (&self.disk, &mut self.aged[0]),
            Place::Memory => (&self.memory, &mut self.aged[1]),
        };
        let dir = folder.0.join("aged");
        let server = Server::start(programs, &dir)?;
        if aged.is_none() {
            let mut command = bench_store(programs, &server, mib);
            command.args(["--rw", "randwrite", "--age", AGE, "--io-size", "4k", "--keep"]);
            eprintln!("store: {}", process::line(&command));
            let (line, output) = (process::line(&command), process::output(&mut command)?);
            *aged = Some(chunk_of(&line, &output)?);
        }
        let chunk = aged.clone();
        let seen = self.load_on(&server, load, mib, chunk.as_deref())?;
        server.stop()?;
        Ok(seen)
    }

    fn load_on(
        &self,
        server: &Server,
        load: Load,
        mib: u32,
        chunk: Option<&str>,
    ) -> Result<Seen, Failure> {
        let mut command = bench_store(self.ground.programs.folder(), server, mib);
        command.args(["--rw", load.rw, "--bs", load.bs, "--time-based"]);
        command.args(["--iodepth", &load.depth.to_string()]);
        command.args(["--runtime", &self.seconds.to_string()]);
        command.args(chunk.iter().flat_map(|chunk| ["--chunk", *chunk]));
        let (line, output) = (process::line(&command), process::quiet_output(&mut command)?);
        Seen::of(&line, &output, &[fio::direction(load)])
    }

    /// A whole `towpath put` to a new store in memory.
    fn put(&self, programs: &Path, load: Load) -> Result<Seen, Failure> {
        let source = self.memory.0.join("source");
        let bytes = (PUT_MIB as usize) << 20;
        if !source.exists() {
            let written = fs::write(&source, vec![0x5a; bytes]);
            written.map_err(|error| Failure::File { path: source.clone(), source: error })?;
        }
        let dir = self.fresh_dir(Place::Memory)?;
        let server = Server::start(programs, &dir)?;
        let mut command = Command::new(programs.join("towpath"));
        command.arg("put").arg(&source).args(["--server", &server.address]);
        command.args(["--op-size", load.bs, "--depth", &load.depth.to_string()]);
        let began = Instant::now();
        process::quiet_output(&mut command)?;
        let seconds = began.elapsed().as_secs_f64();
        server.stop()?;
        workspace::remove_dir(&dir)?;
        Ok(Seen(vec![("mb_per_s", bytes as f64 / seconds / 1e6)]))
    }

    /// Where a store can be made that is not there yet.
    fn fresh_dir(&self, place: Place) -> Result<PathBuf, Failure> {
        let folder = if place == Place::Disk { &self.disk } else { &self.memory };
        let dir = folder.0.join("fresh");
        workspace::remove_dir(&dir)?;
        Ok(dir)
    }
}

fn bench_store(programs: &Path, server: &Server, mib: u32) -> Command {
    let mut command = Command::new(programs.join("towpath"));
    command.args(["bench", "store", &server.address, "--json"]);
    command.args(["--size", &format!("{mib}m")]);
    command
}

/// The name of the chunk that was kept.
fn chunk_of(line: &str, output: &str) -> Result<String, Failure> {
    let whole: Option<Value> = serde_json::from_str(output).ok();
    let name = whole.as_ref().and_then(|whole| whole.get("chunks")?.get(0)?.as_str());
    name.map(str::to_owned).ok_or_else(|| Failure::NoMetric {
        command: line.to_owned(),
        metric: "chunks.0".to_owned(),
        output: output.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::super::case::{Measure, chosen};
    use super::*;
    use crate::bench::programs::tests::Fakes;

    /// Listens nowhere, and ends in order.
    const SERVER: &str = "trap 'exit 0' TERM\necho listening on 127.0.0.1:1\n\
        while :; do sleep 0.01; done";

    /// Says how it was called, and what it measured: twice as much on the chunk that it has aged.
    const GENERATOR: &str = r#"echo "$*" >>"$(dirname "$0")/calls"
case "$*" in *--age*) echo '{"chunks": ["abc"]}'; exit;; esac
case "$*" in *'--chunk abc'*) iops=2;; *) iops=1;; esac
cat <<END
{"write": {"iops": $iops, "bw_bytes": 1, "lat_ns": {"mean": 1,
 "percentile": {"50.000000": 1, "99.000000": 1}}}}
END"#;

    #[test]
    fn a_store_is_aged_once_and_its_chunk_is_measured_from_then_on() {
        let fakes = Fakes::of("store");
        fakes.put("towpath-chunkserver", SERVER);
        fakes.put("towpath", GENERATOR);
        let programs = fakes.programs();
        let options = Options { aged_size: 16, dir: Some(fakes.folder().to_owned()) };
        let svg = Path::new("unused.svg");
        let (against, cases, on_stdout) = (None, &[][..], false);
        let ground =
            Ground { programs: &programs, against, options: &options, cases, svg, on_stdout };
        let has = Has { nbd: false, against: false };
        let mut rig = Rig::new(&ground, 3, has).unwrap();
        let case = chosen(&["write-4k-32".to_owned()]).unwrap()[0];
        let Measure::Load(load) = case.measure else { panic!("a load") };
        let mut iops = |side| rig.load(&case, load, side).unwrap().value("iops");
        assert_eq!(
            (iops(Side::Fresh), iops(Side::Aged), iops(Side::Aged)),
            (Some(1.0), Some(2.0), Some(2.0))
        );
        let calls = fs::read_to_string(fakes.folder().join("calls")).unwrap();
        let calls: Vec<&str> = calls.lines().collect();
        assert_eq!(calls.len(), 4, "one of them ages: {calls:?}");
        assert!(calls[1].contains("--age 5") && calls[1].contains("--keep"), "{calls:?}");
        let wanted = "--size 16m --rw randwrite --bs 4k --time-based --iodepth 32 --runtime 3";
        assert!(calls[0].ends_with(wanted), "{calls:?}");
        let folder = rig.disk.0.clone();
        drop(rig);
        assert!(!folder.exists(), "what was measured on is removed");
    }

    #[test]
    fn a_server_that_does_not_listen_is_an_error_with_what_it_said() {
        let fakes = Fakes::of("store-silent");
        fakes.put("towpath-chunkserver", "echo no room; exit 1");
        let failure = Server::start(fakes.folder(), Path::new("unused")).err().expect("no server");
        assert!(failure.to_string().contains("no room"), "{failure}");
    }
}
