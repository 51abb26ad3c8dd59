//! All jobs of a run: their start, their progress and their end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use towpath_status::say;

use super::args::StoreArgs;
use super::job::{Job, News, Outcome, Shared};
use super::plan::Plan;
use super::report::Report;
use super::work::Live;
use crate::cli::bytes::show_size;
use crate::cli::error::CliError;
use crate::cli::interrupt::Interrupt;
use crate::cli::progress::Progress;
use crate::cli::{print_json, print_text};
use crate::random::random;

/// How often progress is looked at.
const TICK: Duration = Duration::from_millis(100);

/// Puts the load on the server and prints what came of it.
pub(crate) fn run(args: &StoreArgs, interrupt: &Interrupt) -> Result<(), CliError> {
    let plan = Plan::of(args)?;
    let shared =
        Shared { plan, nonce: random(), live: Live::default(), is_over: AtomicBool::new(false) };
    let (news_of_jobs, news) = channel();
    let outcomes = thread::scope(|scope| {
        let mut starts = Vec::new();
        for number in 0..shared.plan.jobs {
            let (start, started) = channel();
            starts.push(start);
            let news = news_of_jobs.clone();
            let (shared, server) = (&shared, &args.server);
            let job = Job { number, shared, server, interrupt, news, start: started };
            scope.spawn(move || job.run());
        }
        drop(news_of_jobs);
        Crew::new(&shared, news, starts).wait()
    })?;
    let is_interrupted = interrupt.check().is_err();
    let report = Report::new(&shared.plan, args, &outcomes, is_interrupted)?;
    match args.server.link.json {
        true => print_json(&report)?,
        false => print_text(&report.text())?,
    }
    Ok(interrupt.check()?)
}

/// The jobs that run, as the thread sees them that waits for them.
struct Crew<'a> {
    shared: &'a Shared,
    news: Receiver<News>,
    /// One for each job; dropped where there is no start.
    starts: Vec<Sender<()>>,
    outcomes: Vec<Outcome>,
    failure: Option<CliError>,
    /// Jobs that have made their chunks, that wait for the start, and that have ended.
    made: usize,
    ready: usize,
    ended: usize,
    /// Bytes that all jobs write before the measurement.
    bytes_before: u64,
    began: Option<Instant>,
    /// Requests that had ended when the measurement began.
    ios_before: u64,
    progress: Progress,
}

impl<'a> Crew<'a> {
    fn new(shared: &'a Shared, news: Receiver<News>, starts: Vec<Sender<()>>) -> Self {
        Self {
            shared,
            news,
            starts,
            outcomes: Vec::new(),
            failure: None,
            made: 0,
            ready: 0,
            ended: 0,
            bytes_before: 0,
            began: None,
            ios_before: 0,
            progress: Progress::bytes("layout", 0),
        }
    }

    /// Waits until all jobs have ended.
    fn wait(mut self) -> Result<Vec<Outcome>, CliError> {
        let jobs = self.shared.plan.jobs as usize;
        while self.ended < jobs {
            match self.news.recv_timeout(TICK) {
                Ok(news) => self.take(news),
                Err(RecvTimeoutError::Timeout) => self.show(),
                // A thread that has panicked tells nothing: the scope passes its panic on.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.failure.map_or(Ok(self.outcomes), Err)
    }

    fn take(&mut self, news: News) {
        let jobs = self.shared.plan.jobs as usize;
        match news {
            News::Layout(bytes) => {
                (self.made, self.bytes_before) = (self.made + 1, self.bytes_before + bytes);
                self.progress.of(self.bytes_before);
                if self.made == jobs && self.bytes_before > 0 {
                    self.tell_layout();
                }
            }
            News::Ready => {
                self.ready += 1;
                if self.ready == jobs {
                    self.start();
                }
            }
            News::Ended(outcome) => {
                self.ended += 1;
                match outcome {
                    Ok(outcome) => self.outcomes.push(*outcome),
                    Err(error) => self.fail(error),
                }
            }
        }
    }

    /// The first reason counts; that others were stopped for it is none.
    fn fail(&mut self, error: CliError) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.starts.clear();
        if self.failure.as_ref().is_none_or(|first| matches!(first, CliError::Interrupted(_))) {
            self.failure = Some(error);
        }
    }

    fn tell_layout(&self) {
        let Shared { plan, .. } = self.shared;
        let (chunks, bytes) = (plan.jobs * plan.chunks, show_size(self.bytes_before));
        let aged = match plan.age {
            0 => String::new(),
            age => format!(", each page {age} times more in random order"),
        };
        let chunks = if chunks == 1 { String::from("1 chunk") } else { format!("{chunks} chunks") };
        say(format_args!("towpath: writing {bytes} to {chunks} before the measurement{aged}"));
    }

    fn start(&mut self) {
        self.began = Some(Instant::now());
        self.ios_before = self.shared.live.ios.load(Ordering::Relaxed);
        self.progress = Progress::load(self.shared.plan.block);
        // A job that has ended meanwhile needs no start.
        for start in &self.starts {
            let _ = start.send(());
        }
    }

    fn show(&mut self) {
        let Shared { plan, live, .. } = self.shared;
        let Some(began) = self.began else {
            return self.progress.at(live.bytes.load(Ordering::Relaxed));
        };
        let (passed, ios) = (began.elapsed(), live.ios.load(Ordering::Relaxed));
        if passed < plan.ramp {
            self.ios_before = ios;
        }
        let done = ios.saturating_sub(self.ios_before);
        self.progress.at_load(share(plan, passed, done), done);
    }
}

/// The share of a measurement that is done: of its time or of its bytes, whichever ends it first.
fn share(plan: &Plan, passed: Duration, ios: u64) -> f64 {
    let all = plan.runtime.map(|runtime| (plan.ramp + runtime).as_secs_f64());
    let of_time = all.map_or(0.0, |all| passed.as_secs_f64() / all);
    let whole = plan.io_bytes.map(|bytes| bytes as f64 * f64::from(plan.jobs));
    let of_bytes = whole.map_or(0.0, |whole| (ios * plan.block) as f64 / whole);
    of_time.max(of_bytes).min(1.0)
}
