//! edge-hub
