//! Tests that need namespaces, BGP peers or an API server.
