//! One thread of the clients: one client, or several that are carried on as their replies come.

use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use towpath_kv::client::{
    Client, ClientConfig, ClientError, Many, OneSided, Reads, Told, Transport, Waiting, Watched,
};
use towpath_kv::wire::{Ask, Failure};

use super::task::{Asked, Counted, Task};

/// The longest sleep: each call ends long before.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// What a client asks through that has a thread of its own.
pub(super) enum Asker {
    /// All is asked.
    Plain(Client<Box<dyn Transport>>),
    /// What the server granted is read.
    OneSided(OneSided<Box<dyn Reads>>),
}

/// The clients of a thread.
enum Clients {
    One(Box<Asker>),
    Several(Many<Box<dyn Watched>>, Waiting),
}

/// One thread's clients, their tasks in the same order, and what these took.
pub(super) struct Worker {
    clients: Clients,
    tasks: Vec<Task>,
    took: Histogram<u64>,
    ran: Option<(Instant, Instant)>,
}

impl Asker {
    fn ask(&mut self, ask: Ask<'_>) -> Result<Told, ClientError> {
        match (self, ask) {
            (Self::Plain(client), ask) => client.ask(ask),
            (Self::OneSided(client), Ask::Get { key }) => {
                client.get(key)?.map(Told::Value).ok_or(ClientError::Refused(Failure::NoKey))
            }
            (Self::OneSided(client), ask) => client.client().ask(ask),
        }
    }

    fn asked(&mut self) -> Asked {
        match self {
            Self::Plain(client) => (client.stats(), 0),
            Self::OneSided(client) => (client.client().stats(), client.stats().found),
        }
    }
}

impl Worker {
    /// A client with a thread of its own.
    pub(super) fn of_one(asker: Asker, task: Task, took: Histogram<u64>) -> Self {
        Self { clients: Clients::One(Box::new(asker)), tasks: vec![task], took, ran: None }
    }

    /// No clients yet, of those that share a thread, which waits so for all.
    ///
    /// # Errors
    /// The system has no more files to give.
    pub(super) fn of_several(waiting: Waiting, took: Histogram<u64>) -> io::Result<Self> {
        let clients = Clients::Several(Many::new()?, waiting);
        Ok(Self { clients, tasks: Vec::new(), took, ran: None })
    }

    /// Adds one of several; a client that has a thread of its own stays alone.
    pub(super) fn add(&mut self, link: Box<dyn Watched>, config: ClientConfig, task: Task) {
        if let Clients::Several(many, _) = &mut self.clients {
            many.add(Client::new(link, config));
            self.tasks.push(task);
        }
    }

    /// Does all tasks, but begins no operation after `most`.
    ///
    /// # Errors
    /// Of the system, which cannot tell what came.
    pub(super) fn run(&mut self, most: Duration) -> io::Result<()> {
        let first = Instant::now();
        let until = first + most;
        let last = match &mut self.clients {
            Clients::One(asker) => one(asker, &mut self.tasks[0], until, &mut self.took),
            Clients::Several(many, waiting) => {
                let pause = if *waiting == Waiting::Polling { Duration::ZERO } else { SLEEP_MAX };
                several(many, &mut self.tasks, (until, pause), &mut self.took)?
            }
        };
        self.ran = Some((first, last));
        Ok(())
    }

    /// When it began, and when it ended.
    pub(super) fn ran(&self) -> Option<(Instant, Instant)> {
        self.ran
    }

    pub(super) fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    pub(super) fn took(&self) -> &Histogram<u64> {
        &self.took
    }

    /// What is counted beside time, of all its clients.
    pub(super) fn counted(&mut self) -> Counted {
        let mut counted = Counted::default();
        for (number, task) in self.tasks.iter().enumerate() {
            counted.add(&task.counted(self.clients.asked(number)));
        }
        counted
    }
}

impl Clients {
    fn asked(&mut self, number: usize) -> Asked {
        match self {
            Self::One(asker) => asker.asked(),
            Self::Several(many, _) => {
                (many.client(number).map(Client::stats).unwrap_or_default(), 0)
            }
        }
    }
}

/// Does the task of one client, each call waiting for its reply; when it ended.
fn one(asker: &mut Asker, task: &mut Task, until: Instant, took: &mut Histogram<u64>) -> Instant {
    let mut now = Instant::now();
    while now < until && task.begin(now) {
        while let Some(ask) = task.ask() {
            let told = asker.ask(ask);
            now = Instant::now();
            task.answered(told, now, took);
        }
    }
    now
}

/// Does the tasks of several clients, each with one operation under way; when the last ended.
fn several(
    many: &mut Many<Box<dyn Watched>>,
    tasks: &mut [Task],
    (until, pause): (Instant, Duration),
    took: &mut Histogram<u64>,
) -> io::Result<Instant> {
    let mut under_way = 0;
    let mut now = Instant::now();
    for (number, task) in tasks.iter_mut().enumerate() {
        now = Instant::now();
        if now < until && task.begin(now) && ask(many, number, task) {
            under_way += 1;
        }
    }
    while under_way > 0 {
        let Some((number, told)) = many.wait(pause)? else { continue };
        now = Instant::now();
        let task = &mut tasks[number];
        let has_ended = task.answered(told, now, took);
        let goes_on = !has_ended || now < until && task.begin(now);
        if !(goes_on && ask(many, number, task)) {
            under_way -= 1;
        }
    }
    Ok(now)
}

/// Asks what a task wants to know now; whether that is under way.
fn ask(many: &mut Many<Box<dyn Watched>>, number: usize, task: &Task) -> bool {
    task.ask().is_some_and(|ask| many.start(number, ask))
}
