//! Clients work through their operations while things befall them; then all is looked at.

use super::client::Client;
use super::dice::Dice;
use super::model::Broken;
use super::server::Server;
use super::tally::{Rides, Tally};
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_proto::{Carrier, LinkStats};
use towpath_sim::FaultCounters;
use towpath_verbs::Device;

/// How long links may take to be back on the best carrier when nothing befalls them any more.
const BACK_WITHIN: Nanos = Nanos::from_secs(60);

/// Operations of each client on links that are back.
const OPERATIONS_BACK: u64 = 20;

/// How often progress is told in a run.
const PROGRESS_PARTS: u64 = 20;

/// Whoever drives a server and its clients.
pub trait Rig {
    /// What they are on.
    type Device: Device<Memory = Region>;

    /// How many clients there are.
    fn count(&self) -> usize;

    /// One of them, by its number from 0.
    fn client(&mut self, number: usize) -> &mut Client<Self::Device>;

    /// The server.
    fn server(&mut self) -> &mut Server<Self::Device>;

    /// Lets everybody do what there is to do for a while.
    ///
    /// # Errors
    /// [`Broken`].
    fn step(&mut self) -> Result<(), Broken>;
}

/// How much is asked, and how often something befalls a client.
#[derive(Clone, Copy, Debug)]
pub struct SoakPlan {
    /// Where what befalls clients comes from.
    pub seed: u64,
    /// Operations of each client.
    pub operations: u64,
    /// Something befalls a client after about so many of its own.
    pub every: u64,
    /// How long an operation may take.
    pub deadline: Nanos,
}

impl SoakPlan {
    /// Works through it. Then all links have to be back on the best carrier, every value is read
    /// back, and nothing may be left of what has been. `on_progress` is told how things stand now
    /// and then.
    ///
    /// # Errors
    /// The first promise that was broken.
    pub fn run<R: Rig>(
        &self,
        rig: &mut R,
        mut on_progress: impl FnMut(&Tally),
    ) -> Result<Tally, Broken> {
        let (mut dice, began) = (Dice::new(self.seed), rig.server().endpoint.now());
        let mut next: Vec<u64> = (0..rig.count()).map(|_| dice.after(self.every)).collect();
        each(rig, |client| client.work_to(self.operations));
        let part = (self.operations * rig.count() as u64 / PROGRESS_PARTS).max(1);
        let mut told = part;
        while !all(rig, Client::is_done) {
            rig.step()?;
            for (number, next) in next.iter_mut().enumerate() {
                let client = rig.client(number);
                if client.answered() >= *next {
                    *next = client.answered() + dice.after(self.every);
                    dice.befall(client);
                }
            }
            let answered = sum(rig, Client::answered);
            if answered >= told {
                on_progress(&self.tally(rig, &dice, began));
                told = answered - answered % part + part;
            }
        }
        self.come_back(rig)?;
        each(rig, Client::read_back);
        while !all(rig, Client::is_done) {
            rig.step()?;
        }
        // What was answered last is still being acknowledged.
        let quiet = rig.server().endpoint.now() + self.deadline;
        while !all(rig, Client::is_quiet) && rig.server().endpoint.now() < quiet {
            rig.step()?;
        }
        (0..rig.count()).try_for_each(|number| rig.client(number).check())?;
        Ok(self.tally(rig, &dice, began))
    }

    /// Nothing befalls anybody any more: all links find back to the best carrier.
    fn come_back<R: Rig>(&self, rig: &mut R) -> Result<(), Broken> {
        each(rig, |client| client.weather.clear());
        let until = rig.server().endpoint.now() + BACK_WITHIN;
        // A link that nothing is sent on finds its way as well.
        while !all(rig, |client| client.carrier() == Some(Carrier::Uc))
            || !rig.server().is_on(Carrier::Uc)
        {
            if rig.server().endpoint.now() > until {
                return Err(Broken::NotBack { after: BACK_WITHIN });
            }
            rig.step()?;
        }
        each(rig, |client| client.work_to(client.answered() + OPERATIONS_BACK));
        while !all(rig, Client::is_done) {
            rig.step()?;
        }
        Ok(())
    }

    fn tally<R: Rig>(&self, rig: &mut R, dice: &Dice, began: Time) -> Tally {
        let mut tally = Tally {
            operations: sum(rig, Client::answered),
            took: rig.server().endpoint.now().since(began),
            longest: Nanos::ZERO,
            deadline: self.deadline,
            clients: Rides::default(),
            server: rig.server().rides,
            befallen: dice.befallen,
            faults: FaultCounters::default(),
            swallowed: 0,
            links: LinkStats::default(),
        };
        tally.links += rig.server().endpoint.stats_of_all_links();
        each(rig, |client| {
            tally.longest = tally.longest.max(client.longest);
            tally.clients += client.rides;
            tally.faults = tally.faults.plus(client.weather.faults.counters());
            tally.swallowed += client.weather.hole.swallowed();
            tally.links += client.endpoint.stats_of_all_links();
        });
        tally
    }
}

fn each<R: Rig>(rig: &mut R, mut act: impl FnMut(&mut Client<R::Device>)) {
    (0..rig.count()).for_each(|number| act(rig.client(number)));
}

fn all<R: Rig>(rig: &mut R, holds: impl Fn(&Client<R::Device>) -> bool) -> bool {
    (0..rig.count()).all(|number| holds(rig.client(number)))
}

fn sum<R: Rig>(rig: &mut R, value: impl Fn(&Client<R::Device>) -> u64) -> u64 {
    (0..rig.count()).map(|number| value(rig.client(number))).sum()
}
