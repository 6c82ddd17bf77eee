//! STATUS: would ADD work now?

use crate::error::{CniError, Code};

/// What STATUS looks at. A failing STATUS makes containerd report the node not ready, so a short outage, or a locked
/// datastore, is no reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusFacts {
    /// Why ADD cannot work: never synced, fenced, base rules missing.
    pub not_ready: Option<String>,
    /// A family the configuration asks for has no usable pool.
    pub no_pool_for: Option<String>,
    /// Seconds since an allocation failed for lack of addresses, if none has succeeded since.
    pub exhausted_for: Option<u64>,
    /// The last attempt to program the kernel failed, and why.
    pub kernel_failing: Option<String>,
}

/// How long a lack of addresses is reported.
const EXHAUSTION_SECONDS: u64 = 30;

/// The verdict.
///
/// # Errors
/// Code 51 when existing pods may be affected too, else code 50.
pub fn verdict(facts: &StatusFacts) -> Result<(), CniError> {
    let unavailable = |msg: &str, why: &str| {
        Err(CniError::new(Code::UNAVAILABLE, msg.to_owned()).with_details(why.to_owned()))
    };
    if let Some(why) = &facts.kernel_failing {
        return Err(CniError::new(
            Code::UNAVAILABLE_LIMITED,
            "the kernel could not be programmed",
        )
        .with_details(why.clone()));
    }
    if let Some(why) = &facts.not_ready {
        return unavailable("pods cannot be added now", why);
    }
    if let Some(family) = &facts.no_pool_for {
        return unavailable("no address pool can be used", family);
    }
    if facts
        .exhausted_for
        .is_some_and(|seconds| seconds < EXHAUSTION_SECONDS)
    {
        return unavailable("no addresses are left", "the last allocation failed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let code = |facts: StatusFacts| verdict(&facts).err().map(|error| error.code);
        let default = StatusFacts::default;
        assert_eq!(code(default()), None);
        assert_eq!(
            code(StatusFacts {
                not_ready: Some("fenced".into()),
                ..default()
            }),
            Some(Code::UNAVAILABLE)
        );
        assert_eq!(
            code(StatusFacts {
                no_pool_for: Some("IPv6".into()),
                ..default()
            }),
            Some(Code::UNAVAILABLE)
        );
        assert_eq!(
            code(StatusFacts {
                exhausted_for: Some(3),
                ..default()
            }),
            Some(Code::UNAVAILABLE)
        );
        assert_eq!(
            code(StatusFacts {
                exhausted_for: Some(31),
                ..default()
            }),
            None
        );
        assert_eq!(
            code(StatusFacts {
                kernel_failing: Some("nft".into()),
                ..default()
            }),
            Some(Code::UNAVAILABLE_LIMITED)
        );
    }
}
