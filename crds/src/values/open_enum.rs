//! A string-valued enum that keeps values it does not know, so that one object written by a newer program never makes
//! a whole list unreadable.

/// Declares such an enum: `open_enum! { /// doc  Name { /// doc  Variant = "Text", is_variant; ... } }`.
///
/// Besides the type it defines `VALUES`, `as_str`, `Display`, serde through the text, a schema with the known values,
/// and one predicate per variant.
macro_rules! open_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal, $is:ident;)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(from = "String", into = "String")]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
            /// A value this version does not know.
            Other(String),
        }

        impl $name {
            /// The values the schema accepts.
            pub const VALUES: &'static [&'static str] = &[$($text),+];

            /// The value as it is written in manifests.
            pub fn as_str(&self) -> &str {
                match self {
                    $($name::$variant => $text,)+
                    $name::Other(text) => text,
                }
            }

            $(
                #[doc = concat!("True for `", $text, "`.")]
                pub fn $is(&self) -> bool {
                    matches!(self, $name::$variant)
                }
            )+
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                match text.as_str() {
                    $($text => $name::$variant,)+
                    _ => $name::Other(text),
                }
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.as_str().to_owned()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": $name::VALUES })
            }
        }
    };
}

pub(crate) use open_enum;
