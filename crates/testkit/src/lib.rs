//! a fake API server with true resource versions and watches, for properties and faults.
