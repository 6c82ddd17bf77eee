//! The server with a real kernel and the real executable.
