//! The two-valued switch most settings use.

use super::open_enum;

open_enum! {
    /// `Enabled` or `Disabled`.
    Switch {
        /// On.
        Enabled = "Enabled", is_enabled;
        /// Off.
        Disabled = "Disabled", is_disabled;
    }
}

#[cfg(test)]
mod tests {
    use super::Switch;

    #[test]
    fn an_unknown_value_survives_a_round_trip() {
        let value: Switch = serde_json::from_str("\"Sometimes\"").expect("any text is accepted");
        assert_eq!(value, Switch::Other("Sometimes".into()));
        assert_eq!(
            serde_json::to_string(&value).expect("serialises"),
            "\"Sometimes\""
        );
        assert!(!value.is_enabled());
    }
}
