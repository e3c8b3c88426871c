//! An index of NodePools.
