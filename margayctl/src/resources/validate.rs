//! placeholder
use crate::api::{Api, Connection};
use crate::failure::Failure;
use crate::manifest::Document;
/// Check manifests
#[derive(Debug, clap::Args)]
pub(crate) struct Validate {}
impl Validate {
    pub(crate) async fn run(&self, _c: &Connection) -> Result<u8, Failure> {
        Ok(0)
    }
}
pub(super) async fn before_writing(_api: &Api, _documents: &[Document]) -> Result<(), Failure> {
    Ok(())
}
