//! The speaker itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::{ConfigError, Families};

/// What the process found when it started (RFC 4724 section 4.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestartState {
    /// This start follows an earlier run of the same speaker: the R bit is set in every OPEN until
    /// recovery has finished.
    pub restarted: bool,
    /// Families whose routes of the earlier run are still in the kernel: the F bit (RFC 4724
    /// section 3). After a boot of the machine none.
    pub preserved: Families,
}

/// Settings of the speaker as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeakerConfig {
    /// BGP identifier, not 0.0.0.0 (RFC 6286).
    pub router_id: Ipv4Addr,
    /// Own cluster id when reflecting (RFC 4456 section 7); `None` is the router id.
    pub cluster_id: Option<Ipv4Addr>,
    /// Addresses to listen on, in the network namespace of the process. An IPv6 socket takes IPv6
    /// only. Empty: dial only.
    pub listen: Vec<SocketAddr>,
    /// State found at start.
    pub restart: RestartState,
    /// Longest time after the start that recovery may take (RFC 4724's Selection_Deferral_Timer).
    pub max_deferral: Duration,
    /// Recovery ends this long after the last session came up, at the latest.
    pub deferral_after_last_session: Duration,
    /// LOCAL_PREF of routes that carry none.
    pub default_local_pref: u32,
    /// Most equal-cost paths of a [`crate::RouteChange`], 1 to 256.
    pub max_paths: u16,
}

impl SpeakerConfig {
    /// A speaker with the usual timers that listens on port 179 of every address.
    pub fn new(router_id: Ipv4Addr) -> Self {
        SpeakerConfig {
            router_id,
            cluster_id: None,
            listen: vec![
                SocketAddr::from(([0, 0, 0, 0], 179)),
                SocketAddr::from(([0u16; 8], 179)),
            ],
            restart: RestartState::default(),
            max_deferral: Duration::from_secs(120),
            deferral_after_last_session: Duration::from_secs(30),
            default_local_pref: 100,
            max_paths: 16,
        }
    }

    /// Effective cluster id.
    pub fn cluster_id(&self) -> Ipv4Addr {
        self.cluster_id.unwrap_or(self.router_id)
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// The first field out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let refuse = |field, reason: &str| {
            Err(ConfigError::Speaker {
                field,
                reason: reason.to_owned(),
            })
        };
        if self.router_id.is_unspecified() {
            return refuse("router_id", "0.0.0.0 is not an identifier");
        }
        if !(1..=256).contains(&self.max_paths) {
            return refuse("max_paths", "must be 1 to 256");
        }
        Ok(())
    }
}
