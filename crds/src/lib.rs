//! The projectcalico.org/v3 and margay.io/v1 resources as Rust types: selectors, validation, CRD manifests.
//!
//! Reading is lenient: fields this version does not know are ignored (or kept, where the object is written back), and
//! words it does not know become `Other`, so that one odd object never hides the rest of a list. Judging an
//! object is the task of [`validate`].

pub mod admin;
pub mod generate;
mod kinds;
pub mod manifests;
pub mod model;
pub mod selector;
pub mod validate;
mod values;

pub use kinds::*;
pub use values::*;
