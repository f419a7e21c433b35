//! mon
