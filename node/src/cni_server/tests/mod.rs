//! The server with a real kernel and the real executable: every test has its own host namespace.

mod attach;
mod bench;
mod broken;
mod detach;
mod fakes;
mod lab;
mod real_ipam;
mod restart;
