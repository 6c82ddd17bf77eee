//! Behaviour of the speaker, without sockets.

mod malformed;
mod mesh;
mod messages;
mod policy;
mod restart;
mod script;
mod world;
