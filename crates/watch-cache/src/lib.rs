//! the shared list/watch cache as a deterministic state machine.
