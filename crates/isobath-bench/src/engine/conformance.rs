//! Every engine of this build answers like the memory engine.
