//! The CNI executable and the protocol it speaks with the node agent.
