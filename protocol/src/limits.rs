//! How much of everything: finite by default, configurable by the server's owner.

wire_structs! {
    /// What a session and its participants may use; told in the welcome.
    pub struct Limits {
        /// Bytes of one message.
        pub message_bytes: usize,
        /// Levels of nested JSON.
        pub json_depth: usize,
        /// Messages a second that a participant may go on sending.
        pub messages_per_second: u32,
        /// Messages that may come at once before the rate counts.
        pub message_burst: u32,
        /// People and agents in one session, whatever its own configuration allows.
        pub participants: u32,
        /// Proposals of one agent that are waiting or running.
        pub open_proposals: u32,
        /// Gates of one session that are open at a time.
        pub open_gates: u32,
        /// Bytes of context that one session holds.
        pub context_bytes: usize,
        /// Proposals over the life of one session; their ids are never forgotten.
        pub proposals: u32,
    }

    /// What one run may use before it is stopped.
    #[derive(Copy, Eq)]
    pub struct ExecutionLimits {
        /// Milliseconds; 0 means no limit (background and interactive runs).
        pub timeout_ms: u64,
        /// Bytes of standard output and standard error together.
        pub output_bytes: u64,
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 1024 * 1024,
            json_depth: 64,
            messages_per_second: 200,
            message_burst: 1000,
            participants: 200,
            open_proposals: 32,
            open_gates: 100,
            context_bytes: 8 * 1024 * 1024,
            proposals: 100_000,
        }
    }
}
