//! Who drives both ends of a link and the applications: a thread each, or one for all in turns.
//!
//! Where more threads are busy than there are cores, what is measured with a thread each is the
//! scheduler of the operating system: who waits, waits for time slices. One thread for all shows
//! the queues, the code and the device instead.

use std::net::Ipv4Addr;

use towpath_lab::solo::{Passing, Solo};
use towpath_lab::studies::{Column, Format, Kind, Param, Params, Report, StudyError};
use towpath_transport::{EndpointConfig, RoceUdp, UdpConfig, roce_udp};

/// Who drives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// A thread for each application, for the worker and for the server.
    Threads,
    /// One thread for all.
    Turns,
}

/// The choice.
pub const DRIVE: Param = Param {
    name: "drive",
    what: "A thread each, or one for all in turns: threads, turns; auto takes threads where each \
           has a core",
    unit: "",
    kind: Kind::Word(|word| parse(word, 1).map(drop)),
    many: false,
    defaults: ["auto"; 3],
};

fn parse(word: &str, threads: usize) -> Result<Drive, &'static str> {
    match word {
        "threads" => Ok(Drive::Threads),
        "turns" => Ok(Drive::Turns),
        "auto" if cores() >= threads => Ok(Drive::Threads),
        "auto" => Ok(Drive::Turns),
        _ => Err("auto, threads or turns"),
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Drive {
    /// What was asked for, where so many threads would be busy.
    #[must_use]
    pub fn of(params: &Params, threads: usize) -> Self {
        parse(params.word(DRIVE.name), threads).unwrap_or(Self::Turns)
    }

    /// As a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Turns => "turns",
        }
    }

    /// Says in each row of what was found who drove it.
    pub fn mark(self, report: &mut Report, threads: usize) {
        for table in &mut report.tables {
            table.columns.push(Column::new("drive", "driven by", "", Format::Plain));
            table.rows.iter_mut().for_each(|row| row.push(self.name().into()));
        }
        let cores = cores();
        report.notes.push(match self {
            Self::Turns => "One thread drove both ends and the applications in turns: nobody \
                            waits for a time slice."
                .to_owned(),
            Self::Threads if cores < threads => format!(
                "{threads} busy threads shared {cores} cores: the figures are those of the \
                 scheduler as well."
            ),
            Self::Threads => format!("{threads} busy threads had {cores} cores."),
        });
    }
}

/// Both ends of a link over UDP on loopback, to be driven by the thread that has them.
///
/// # Errors
/// [`StudyError::Run`] with what was refused.
pub fn in_one_thread(config: impl Fn() -> EndpointConfig) -> Result<Solo<RoceUdp>, StudyError> {
    let failed = |cause| StudyError::run("set-up", cause);
    let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    let configs = [config(), config()];
    let device = |config| roce_udp(udp(), config).map_err(|error| StudyError::run("set-up", error));
    let devices = [device(&configs[0])?, device(&configs[1])?];
    Solo::new(devices, configs, Passing::Real).map_err(failed)
}
