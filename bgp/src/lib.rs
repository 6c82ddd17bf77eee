//! A BGP-4 speaker: deterministic protocol core and a thin tokio driver.
