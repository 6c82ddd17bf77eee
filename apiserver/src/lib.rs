//! A small durable server of the Kubernetes API.
