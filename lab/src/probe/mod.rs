//! Reachability seen from inside the namespaces: ICMP echo with sockets of our own, so that a matrix of hundreds of
//! pairs takes milliseconds and every lost packet is counted.

mod datagram;
mod echo;
mod matrix;
mod stream;

pub use datagram::{Receiver, send_datagram};
pub use matrix::{Endpoint, Matrix, Reach};
pub use stream::{Ping, PingReport};

pub(crate) use matrix::measure;
