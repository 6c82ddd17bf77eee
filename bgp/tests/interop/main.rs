//! The speaker against BIRD 2, FRR and GoBGP, each in a network namespace of its own. Needs root and
//! the unpacked peers (`scripts/peers.sh`, part of `make setup`).

mod bird;
mod cases;
mod fixture;
mod frr;
mod gobgp;
