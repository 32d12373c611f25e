//! Limits on what sessions and runs may use: finite by default, configurable by the server's owner.

wire_structs! {
    /// What a session and its participants may use, as sent in `session.welcome`.
    pub struct Limits {
        /// Bytes of one message.
        pub message_bytes: usize,
        /// Levels of nested JSON.
        pub json_depth: usize,
        /// Messages per second that a participant may send continuously.
        pub messages_per_second: u32,
        /// Messages that a participant may send at once before the rate applies.
        pub message_burst: u32,
        /// Participants of one session; its own configuration cannot allow more.
        pub participants: u32,
        /// Proposals of one agent that may wait or run at a time.
        pub open_proposals: u32,
        /// Gates of one session that may be open at a time.
        pub open_gates: u32,
        /// Bytes of context that one session may hold.
        pub context_bytes: usize,
        /// Proposals in total in one session, because their ids are kept forever.
        pub proposals: u32,
    }

    /// What one run may use before the executor stops it.
    #[derive(Copy, Eq)]
    pub struct ExecutionLimits {
        /// Milliseconds; 0 means no limit (background and interactive runs).
        pub timeout_ms: u64,
        /// Bytes of standard output and standard error together.
        pub output_bytes: u64,
    }
}

impl ExecutionLimits {
    /// What is kept of a run by an agent client: nothing limits its time but the client's lease, and
    /// its output is bounded because the log keeps it.
    pub const CLIENT_RUN: Self = Self {
        timeout_ms: 0,
        output_bytes: 10 * 1024 * 1024,
    };
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
