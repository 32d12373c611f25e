//! Counts connections and requests against the limits of the server, of each address and of each
//! token.
//!
//! A connection is a stranger's until somebody joins on it or makes a request with a valid token.
//! Strangers have only a part of the places, and where there is no room for another, the oldest of
//! them goes: whoever can log in always finds a place to do so.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pvp_protocol::Refusal;
use tokio::sync::Notify;

use super::SessionDirectory;
use crate::config::ServerConfig;

/// Requests at a time of one vote link: it shows one card, and votes once.
const REQUESTS_PER_VOTE_LINK: u64 = 2;

/// One connection, counted until it is dropped.
pub(crate) struct ConnectionSlot {
    directory: Arc<SessionDirectory>,
    /// Names the connection in the table.
    number: u64,
    /// Where it comes from, as addresses are counted.
    address: IpAddr,
    /// Notified when its place was given to another.
    evicted: Arc<Notify>,
    /// Whether the answer to its request was handed over, and only has to be written.
    answered: AtomicBool,
}

impl ConnectionSlot {
    /// Where it comes from, as addresses are counted.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Waits until the place is given to another.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Counts the connection as one that has joined, towards its token if it has one.
    pub(crate) fn attach(&self, token: Option<&str>) -> Result<(), Refusal> {
        let limit = self.directory.config.connections_per_token;
        let mut table = self.directory.slots.0.lock();
        if !table.connections.contains_key(&self.number) {
            return Err(no_room(&self.directory.config));
        }
        if let Some(token) = token {
            table.count_connection(token, limit)?;
        }
        table.change(self.number, |connection| {
            connection.joined = Some(token.map(str::to_owned));
        });
        Ok(())
    }

    /// Undoes [`attach`](Self::attach), for a connection that was refused.
    pub(crate) fn detach(&self) {
        let mut table = self.directory.slots.0.lock();
        let joined = table.change(self.number, |connection| connection.joined.take());
        if let Some(Some(Some(token))) = joined {
            table.release_connection(&token);
        }
        table.keep_limits(&self.directory.config);
    }

    /// Counts the request on this connection towards its token, until its answer is written.
    pub(crate) fn begin_request(&self, token: &str) -> Result<(), Refusal> {
        self.begin_request_within(token, self.directory.config.requests_per_token)
    }

    /// The same for a vote link, whose holder is to hold up nobody with a token.
    pub(crate) fn begin_vote_link_request(&self, link: &str) -> Result<(), Refusal> {
        self.begin_request_within(&format!("vote link {link}"), REQUESTS_PER_VOTE_LINK)
    }

    fn begin_request_within(&self, token: &str, limit: u64) -> Result<(), Refusal> {
        let mut table = self.directory.slots.0.lock();
        let Some(connection) = table.connections.get(&self.number) else {
            return Err(no_room(&self.directory.config));
        };
        if connection.request.as_deref() == Some(token) {
            return Ok(());
        }
        table.count_request(token, limit)?;
        let earlier = table.change(self.number, |connection| {
            connection.request.replace(token.to_owned())
        });
        if let Some(Some(earlier)) = earlier {
            table.release_request(&earlier);
        }
        Ok(())
    }

    /// Says that the answer was handed over, so that the request ends once all of it is written.
    pub(crate) fn record_answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// Says that nothing waits to be written.
    pub(crate) fn record_flushed(&self) {
        if self.answered.swap(false, Ordering::Relaxed) {
            let mut table = self.directory.slots.0.lock();
            let request = table.change(self.number, |connection| connection.request.take());
            if let Some(Some(token)) = request {
                table.release_request(&token);
            }
            table.keep_limits(&self.directory.config);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.directory.slots.0.lock().remove(self.number);
        let connections = &self.directory.connection_count;
        if connections.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.directory.last_connection_closed.notify_waiters();
        }
    }
}

/// One waiting request counted as a connection of its token until it is dropped.
pub(crate) struct RequestSlot {
    directory: Arc<SessionDirectory>,
    token: String,
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        let mut table = self.directory.slots.0.lock();
        table.release_connection(&self.token);
    }
}

/// Every connection of the server.
#[derive(Default)]
pub(super) struct ConnectionSlots(Mutex<SlotTable>);

#[derive(Default)]
struct SlotTable {
    /// The number or the age that was given last; later ones are larger.
    last: u64,
    /// Every connection that has a place.
    connections: HashMap<u64, CountedConnection>,
    /// Those of strangers, by age.
    strangers: BTreeMap<u64, u64>,
    /// The same, by address.
    strangers_by_address: HashMap<IpAddr, BTreeMap<u64, u64>>,
    /// What each token uses.
    tokens: HashMap<String, TokenUse>,
}

struct CountedConnection {
    address: IpAddr,
    evicted: Arc<Notify>,
    /// The token that has joined on it, if there is one; `None` before anybody has joined.
    joined: Option<Option<String>>,
    /// The token of the request that is being answered.
    request: Option<String>,
    /// Its age among the strangers; `None` if it is no stranger's.
    stranger: Option<u64>,
}

#[derive(Default)]
struct TokenUse {
    connections: u64,
    requests: u64,
}

impl SlotTable {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Changes a connection, and counts it among the strangers or not, as it now is; `None` if it
    /// has lost its place.
    fn change<T>(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut CountedConnection) -> T,
    ) -> Option<T> {
        let age = self.next();
        let connection = self.connections.get_mut(&number)?;
        let result = change(connection);
        let is_stranger = connection.joined.is_none() && connection.request.is_none();
        let address = connection.address;
        match (connection.stranger, is_stranger) {
            (None, true) => {
                connection.stranger = Some(age);
                self.strangers.insert(age, number);
                let same = self.strangers_by_address.entry(address).or_default();
                same.insert(age, number);
            }
            (Some(age), false) => {
                connection.stranger = None;
                self.remove_stranger(age, address);
            }
            (Some(_), true) | (None, false) => {}
        }
        Some(result)
    }

    fn remove_stranger(&mut self, age: u64, address: IpAddr) {
        self.strangers.remove(&age);
        if let Some(same) = self.strangers_by_address.get_mut(&address) {
            same.remove(&age);
            if same.is_empty() {
                self.strangers_by_address.remove(&address);
            }
        }
    }

    /// Takes a connection out of every count; nothing if that was done before.
    fn remove(&mut self, number: u64) -> Option<CountedConnection> {
        let connection = self.connections.remove(&number)?;
        if let Some(age) = connection.stranger {
            self.remove_stranger(age, connection.address);
        }
        if let Some(Some(token)) = &connection.joined {
            self.release_connection(token);
        }
        if let Some(token) = &connection.request {
            self.release_request(token);
        }
        Some(connection)
    }

    fn evict(&mut self, number: u64) {
        if let Some(connection) = self.remove(number) {
            connection.evicted.notify_one();
        }
    }

    /// Closes the oldest strangers beyond the limits.
    fn keep_limits(&mut self, config: &ServerConfig) {
        let limit = stranger_limit(config);
        while self.strangers.len() as u64 > limit {
            let Some((_, oldest)) = self.strangers.first_key_value() else {
                return;
            };
            self.evict(*oldest);
        }
    }

    /// Makes room for another stranger of this address; false if there is none to be had.
    fn make_room(&mut self, address: IpAddr, config: &ServerConfig) -> bool {
        let same = self.strangers_by_address.get(&address);
        let too_many = same.filter(|same| same.len() as u64 >= config.connections_per_address);
        if let Some((_, oldest)) = too_many.and_then(|same| same.first_key_value()) {
            self.evict(*oldest);
        }
        while self.strangers.len() as u64 >= stranger_limit(config)
            || self.connections.len() as u64 >= config.connections
        {
            let Some((_, oldest)) = self.strangers.first_key_value() else {
                return false;
            };
            self.evict(*oldest);
        }
        true
    }

    fn count_connection(&mut self, token: &str, limit: u64) -> Result<(), Refusal> {
        let used = self.tokens.entry(token.to_owned()).or_default();
        if used.connections >= limit {
            let what = "connections with one token";
            return Err(Refusal::TooMany { what, limit });
        }
        used.connections += 1;
        Ok(())
    }

    fn count_request(&mut self, token: &str, limit: u64) -> Result<(), Refusal> {
        let used = self.tokens.entry(token.to_owned()).or_default();
        if used.requests >= limit {
            let what = "requests with one token; read the answers to the earlier ones";
            return Err(Refusal::TooMany { what, limit });
        }
        used.requests += 1;
        Ok(())
    }

    fn release_connection(&mut self, token: &str) {
        self.release(token, |used| used.connections -= 1);
    }

    fn release_request(&mut self, token: &str) {
        self.release(token, |used| used.requests -= 1);
    }

    fn release(&mut self, token: &str, release: impl FnOnce(&mut TokenUse)) {
        if let Some(used) = self.tokens.get_mut(token) {
            release(used);
            if used.connections == 0 && used.requests == 0 {
                self.tokens.remove(token);
            }
        }
    }
}

/// What counts as one address. Who has one of IPv6 has 2^64 of them, and behind a dual-stack listener
/// an IPv4 address has two spellings.
fn counted_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
    }
}

/// How many connections may be those of strangers.
fn stranger_limit(config: &ServerConfig) -> u64 {
    let reserved = config.connections.saturating_mul(config.reserved_percent) / 100;
    (config.connections - reserved).max(1)
}

fn no_room(config: &ServerConfig) -> Refusal {
    Refusal::TooMany {
        what: "connections",
        limit: config.connections,
    }
}

impl SessionDirectory {
    /// Counts a new connection from this address; `None` if all places are taken by those who are
    /// logged in.
    pub(crate) fn accept_connection(
        self: &Arc<Self>,
        address: IpAddr,
    ) -> Option<Arc<ConnectionSlot>> {
        let address = counted_address(address);
        let mut table = self.slots.0.lock();
        if !table.make_room(address, &self.config) {
            return None;
        }
        let number = table.next();
        let evicted = Arc::new(Notify::new());
        let connection = CountedConnection {
            address,
            evicted: evicted.clone(),
            joined: None,
            request: None,
            stranger: None,
        };
        table.connections.insert(number, connection);
        table.change(number, |_| ());
        self.connection_count.fetch_add(1, Ordering::Relaxed);
        Some(Arc::new(ConnectionSlot {
            directory: self.clone(),
            number,
            address,
            evicted,
            answered: AtomicBool::new(false),
        }))
    }

    /// Counts a request that may wait towards its token, as if it were a connection.
    pub(crate) fn acquire_request_slot(
        self: &Arc<Self>,
        token: &str,
    ) -> Result<RequestSlot, Refusal> {
        let limit = self.config.connections_per_token;
        self.slots.0.lock().count_connection(token, limit)?;
        let (directory, token) = (self.clone(), token.to_owned());
        Ok(RequestSlot { directory, token })
    }
}
