//! The stand-alone speaker: peers and prefixes out of one file instead of a cluster.

mod control;
mod fib;
mod file;
mod run;

pub(crate) use run::run;
