//! What a path is thought of, as one table of legal moves.

use crate::named;

named! {
    /// What a path is thought of.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum PathState {
        /// It carries chunks.
        #[default]
        Good => "good",
        /// Something on it is overdue: others are preferred, and probes ask whether it works.
        Suspect => "suspect",
        /// In quarantine: nothing is sent on it.
        Dead => "dead",
        /// Its quarantine is over: probes ask whether it works again.
        Probing => "probing",
        /// Joined at both ends and held back until another path is retired.
        Spare => "spare",
        /// Its queue pair is in error or was left, and another one is being made: nothing is sent
        /// on it.
        Failed => "failed",
    }
}

named! {
    /// What makes a path move from one state to another.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum PathSignal {
        /// What was sent on it was not acknowledged for an SLA tick or a retransmission timeout,
        /// while later chunks on other paths were.
        Silent => "silent",
        /// The peer repeats what it has sent: acks that went this way did not arrive.
        Duplicates => "duplicates",
        /// What had been sent before the doubt was acknowledged after all.
        Late => "late ack",
        /// Probes were acknowledged, as many as it takes.
        Answered => "probes answered",
        /// A probe was acknowledged, but the path has been in doubt too often of late.
        Relapsed => "relapsed",
        /// Probes were not acknowledged, while chunks on other paths were.
        Unanswered => "probes unanswered",
        /// It leaves from another source port, which is another way through the network.
        Moved => "source port changed",
        /// Another path was retired, or none answers, and this one is to take its place.
        Called => "called",
        /// Probes are answered, but as many paths are good as are used.
        Unneeded => "not needed",
        /// The quarantine is over.
        Rested => "rested",
        /// Its queue pair is in error, or is given up for one that leaves from another port.
        Failed => "failed",
        /// Its queue pair was made anew, at both ends.
        Renewed => "queue pair renewed",
    }
}

/// One legal move of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Where it stands.
    pub from: PathState,
    /// What happens.
    pub signal: PathSignal,
    /// Where it goes.
    pub to: PathState,
    /// Why that is right.
    pub why: &'static str,
}

const fn moves(from: PathState, signal: PathSignal, to: PathState, why: &'static str) -> Move {
    Move { from, signal, to, why }
}

/// All legal moves. A signal that has none in a state changes nothing there.
pub const MOVES: [Move; 18] = {
    use PathSignal as S;
    use PathState::{Dead, Failed, Good, Probing, Spare, Suspect};
    [
        moves(Good, S::Silent, Suspect, "the peer answers on other paths, so this one is at fault"),
        moves(Good, S::Duplicates, Suspect, "acks went this way and the peer did not get them"),
        moves(Suspect, S::Late, Good, "it was slow, not gone: nothing was lost on it"),
        moves(Suspect, S::Answered, Good, "a probe got through: chunks were lost, not the path"),
        moves(Suspect, S::Relapsed, Dead, "it comes and goes: chasing it costs a tick each time"),
        moves(Suspect, S::Unanswered, Dead, "it swallows what is sent, and asking on is in vain"),
        moves(Dead, S::Moved, Probing, "nothing is known against its new way; it is probed first"),
        moves(Spare, S::Called, Probing, "it takes the place of another, and is probed first"),
        moves(Dead, S::Rested, Probing, "a path is probed before it is used again"),
        moves(Probing, S::Answered, Good, "several probes in a row got through"),
        moves(Probing, S::Unneeded, Spare, "it works, and as many others as are used do"),
        moves(Probing, S::Unanswered, Dead, "it is as dead as before: a longer quarantine"),
        moves(Good, S::Failed, Failed, "its queue pair is in error"),
        moves(Suspect, S::Failed, Failed, "its queue pair is in error"),
        moves(
            Dead,
            S::Failed,
            Failed,
            "its queue pair is in error, or the next one is to try another port",
        ),
        moves(Probing, S::Failed, Failed, "its queue pair is in error"),
        moves(Spare, S::Failed, Failed, "its queue pair is in error"),
        moves(Failed, S::Renewed, Probing, "nothing is known of its new queue pair"),
    ]
};

impl PathState {
    /// How many there are.
    pub(crate) const COUNT: usize = Self::Failed as usize + 1;

    /// Where a signal leads from here; `None` when it changes nothing.
    #[must_use]
    pub fn after(self, signal: PathSignal) -> Option<Self> {
        let legal = |step: &&Move| step.from == self && step.signal == signal;
        MOVES.iter().find(legal).map(|step| step.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    #[test]
    fn the_protocol_document_has_the_table_of_moves() {
        let mut table = String::from("| from | signal | to | why |\n|---|---|---|---|\n");
        for Move { from, signal, to, why } in MOVES {
            table += &format!("| {from} | {signal} | {to} | {why} |\n");
        }
        let document = include_str!("../../../../docs/protocol.md");
        assert!(document.contains(&table), "docs/protocol.md section 9 needs this:\n{table}");
    }
}
