//! How dangerous a command is, and why.
