//! The fabric as a wire for messages: one message is one train.

use super::TrainLink;
use std::net::SocketAddr;
use towpath_base::Time;
use towpath_sim::{RxTrain, TxTrain, VirtualLink};
use towpath_verbs::{LinkCaps, PacketLink};

impl TrainLink for VirtualLink {
    fn caps(&self) -> LinkCaps {
        PacketLink::caps(self)
    }

    fn local_addr(&self) -> SocketAddr {
        PacketLink::local_addr(self)
    }

    fn now(&self) -> Time {
        PacketLink::now(self)
    }

    fn send_train(&mut self, train: &TxTrain<'_>) -> bool {
        self.transmit_trains(&[*train]) == 1
    }

    fn receive_trains(&mut self, budget: usize, sink: &mut dyn FnMut(RxTrain<'_>)) -> usize {
        Self::receive_trains(self, budget, sink)
    }
}
