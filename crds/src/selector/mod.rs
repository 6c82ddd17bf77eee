//! The label selector language of policies, pools and peers.
