//! Targets for attacks: files, secrets, a process, listeners and shared memory that belong to the
//! test, and a snapshot of them from outside the sandbox.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use pvp_agent::reaper::SpawnSpec;
use pvp_agent::run::{
    self, FinishedRun, OverflowAction, ReaperPool, RunError, RunLimits, StdioChunk,
    SupervisedProcess,
};
use pvp_agent::sandbox::{ResourceLimits, Sandbox};
use pvp_protocol::SandboxProfile;
use pvp_protocol::payload::OutputStream;
use tokio::sync::mpsc;

use crate::support::TEST_TIMEOUT;
use crate::support::program::{copy_program, write_program};
use crate::support::skip::skip;

/// The user `nobody`, who exists on every Linux.
const NOBODY_UID: u32 = 65534;

/// In every planted secret file and in the victim's environment; no command may print it.
pub const PLANTED_SECRET: &str = "pvp-planted-secret-4f1d";

/// Attacks print this when they succeed.
pub const DAMAGE_MARKER: &str = "DAMAGED";

/// Files in a home directory that hold keys and passwords.
const SECRET_FILES: &[&str] = &[
    ".ssh/id_rsa",
    ".aws/credentials",
    ".netrc",
    ".git-credentials",
    ".docker/config.json",
    ".kube/config",
    ".config/gh/hosts.yml",
    ".bash_history",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAsUser {
    Root,
    Nobody,
}

impl RunAsUser {
    /// The users that this machine can run commands as; the others are reported as skipped.
    pub fn available() -> Vec<Self> {
        let users = [Self::Root, Self::Nobody].into_iter();
        users.filter(|user| user.or_skip()).collect()
    }

    /// Whether this machine can run commands as this user; if not, that is reported as skipped.
    pub fn or_skip(self) -> bool {
        let reason = match self {
            Self::Root if !is_root() => "the test does not run as root",
            Self::Nobody if is_root() && !can_switch_to_nobody() => {
                "setpriv cannot change the user here"
            }
            Self::Root | Self::Nobody => return true,
        };
        skip(reason);
        false
    }

    /// The user that the test itself runs as.
    pub fn current() -> Self {
        match is_root() {
            true => Self::Root,
            false => Self::Nobody,
        }
    }

    /// A command that runs a program as this user.
    fn command(self, program: &str) -> Command {
        if self == Self::Nobody && is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
            return command;
        }
        Command::new(program)
    }
}

/// Prints a note for the reader of the test's output.
#[expect(clippy::print_stderr, reason = "it says what was not tested")]
pub fn report(what: &str) {
    eprintln!("{what}");
}

pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

fn can_switch_to_nobody() -> bool {
    let status = RunAsUser::Nobody.command("true").status();
    status.is_ok_and(|status| status.success())
}

/// Everything that an attack could damage, and the workspace that it runs in.
pub struct SandboxFixture {
    /// The user that commands run as.
    user: RunAsUser,
    /// Holds the workspace, the tree outside it, a home with secrets and the sockets.
    root: tempfile::TempDir,
    /// A home with secrets, elsewhere in /tmp.
    other_home: tempfile::TempDir,
    /// Starts a reaper as `user`.
    program: PathBuf,
    /// A process of the same user.
    victim: Child,
    /// Listens on 127.0.0.1.
    tcp: TcpListener,
    /// Receives on 127.0.0.1.
    udp: UdpSocket,
    /// A UNIX socket with a path.
    stream: UnixListener,
    /// A UNIX datagram socket with a path.
    datagram: UnixDatagram,
    /// A UNIX socket with an abstract name.
    abstract_socket: UnixListener,
    /// System V objects: kind (M, Q or S) and id.
    ipc_objects: Vec<(char, String)>,
}

impl SandboxFixture {
    pub fn new(user: RunAsUser) -> Self {
        let root = shared_temp_dir();
        let other_home = shared_temp_dir();
        let at = |name: &str| root.path().join(name);
        for tree in ["work", "outside"] {
            plant_tree(&at(tree));
        }
        plant_repository(&at("work"));
        std::fs::create_dir(at("tmp")).unwrap();
        plant_secrets(&at("home"));
        plant_secrets(other_home.path());
        let stream = UnixListener::bind(at("stream")).unwrap();
        let datagram = UnixDatagram::bind(at("datagram")).unwrap();
        let name = SocketAddr::from_abstract_name(root.path().to_str().unwrap()).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let abstract_socket = UnixListener::bind_addr(&name).unwrap();
        for nonblocking in [
            stream.set_nonblocking(true),
            datagram.set_nonblocking(true),
            abstract_socket.set_nonblocking(true),
            tcp.set_nonblocking(true),
            udp.set_nonblocking(true),
        ] {
            nonblocking.unwrap();
        }
        let old_call = int80_chmod_program(&at("outside/keep"));
        write_program(&at("work/old-call"), old_call);
        if is_root() && user == RunAsUser::Nobody {
            chown_to_nobody(root.path());
            chown_to_nobody(other_home.path());
        }
        if is_root() {
            let id = at("work/setuid-id");
            copy_program(Path::new("/usr/bin/id"), &id);
            std::fs::set_permissions(&id, PermissionsExt::from_mode(0o4755)).unwrap();
        }
        Self {
            user,
            program: reaper_program_for(user, root.path()),
            victim: spawn_victim(user),
            ipc_objects: ["-M64", "-Q", "-S1"]
                .map(|what| create_ipc_object(user, what))
                .into(),
            root,
            other_home,
            tcp,
            udp,
            stream,
            datagram,
            abstract_socket,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The program that reapers are started from.
    pub fn reaper_program(&self) -> &Path {
        &self.program
    }

    fn environment(&self) -> Vec<(String, String)> {
        let path = |name: &str| self.path(name).display().to_string();
        let mut environment = vec![
            ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin".to_owned()),
            ("TMPDIR", path("tmp")),
            ("HOME", home_dir(self.user)),
            ("WS", path("work")),
            ("OUT", path("outside")),
            ("SECRETS", path("home")),
            ("OTHER", self.other_home.path().display().to_string()),
            ("VICTIM", self.victim.id().to_string()),
            ("TCP", self.tcp.local_addr().unwrap().port().to_string()),
            ("UDP", self.udp.local_addr().unwrap().port().to_string()),
            ("STREAM", path("stream")),
            ("DATAGRAM", path("datagram")),
            ("NAME", self.root.path().display().to_string()),
        ];
        for (kind, id) in &self.ipc_objects {
            let name = match kind {
                'M' => "SHM",
                'Q' => "MSG",
                _ => "SEM",
            };
            environment.push((name, id.clone()));
        }
        let owned = |(name, value): (&str, String)| (name.to_owned(), value);
        environment.into_iter().map(owned).collect()
    }

    pub fn spawn_spec(&self, line: &str, profile: SandboxProfile) -> SpawnSpec {
        let words = ["--noprofile", "--norc", "-c", line];
        SpawnSpec {
            program: "/bin/bash".to_owned(),
            arguments: words.map(str::to_owned).into(),
            directory: self.path("work"),
            directory_identity: None,
            files: Vec::new(),
            environment: self.environment(),
            sandbox: Sandbox {
                profile,
                workspace: self.path("work"),
                temporary: self.path("tmp"),
                private: Vec::new(),
                secret_files: Vec::new(),
                read_roots: Vec::new(),
                limits: ResourceLimits::default(),
                trial: None,
            },
            grace_ms: 100,
            cgroup: true,
            terminal: None,
        }
    }

    /// Runs a command to its end; returns how it ended and its output.
    pub async fn run(
        &self,
        spawn_spec: &SpawnSpec,
    ) -> (Result<FinishedRun, RunError>, CapturedOutput) {
        self.run_with_program(self.reaper_program(), spawn_spec)
            .await
    }

    /// As `run`, with a reaper that is started from another program.
    pub async fn run_with_program(
        &self,
        program: &Path,
        spawn_spec: &SpawnSpec,
    ) -> (Result<FinishedRun, RunError>, CapturedOutput) {
        let bounds = RunLimits {
            timeout: Some(TEST_TIMEOUT / 2),
            output_bytes: 10 * 1024 * 1024,
            on_overflow: OverflowAction::Kill,
        };
        self.run_with_limits(program, spawn_spec, bounds).await
    }

    pub async fn run_with_limits(
        &self,
        program: &Path,
        spawn_spec: &SpawnSpec,
        bounds: RunLimits,
    ) -> (Result<FinishedRun, RunError>, CapturedOutput) {
        let (_stop_sender, stop_receiver) = run::stop_channel();
        let run =
            SupervisedProcess::start(&ReaperPool::on_demand(program), spawn_spec, stop_receiver)
                .await
                .unwrap();
        let (sender, mut receiver) = mpsc::channel::<StdioChunk>(16);
        let gather = async {
            let mut output = CapturedOutput::default();
            while let Some(chunk) = receiver.recv().await {
                match chunk.stream {
                    OutputStream::Stdout => output.out.push_str(&chunk.text),
                    OutputStream::Stderr => output.err.push_str(&chunk.text),
                }
            }
            output
        };
        let secrets = std::collections::BTreeMap::new();
        let both = async { tokio::join!(run.stream_to_end(bounds, &secrets, sender), gather) };
        tokio::time::timeout(TEST_TIMEOUT, both)
            .await
            .expect("it ends")
    }

    pub async fn run_line(
        &self,
        line: &str,
        profile: SandboxProfile,
    ) -> (FinishedRun, CapturedOutput) {
        let (finish, output) = self.run(&self.spawn_spec(line, profile)).await;
        (finish.unwrap(), output)
    }

    /// Everything that a command could have changed.
    pub fn snapshot(&self) -> SystemSnapshot {
        let mut files = BTreeMap::new();
        for tree in ["work", "outside", "home"] {
            snapshot_tree(&self.path(tree), &mut files);
        }
        snapshot_tree(self.other_home.path(), &mut files);
        let tables = self.ipc_objects.iter().map(|(kind, ours)| {
            let table = match kind {
                'M' => "/proc/sysvipc/shm",
                'Q' => "/proc/sysvipc/msg",
                _ => "/proc/sysvipc/sem",
            };
            let table = std::fs::read_to_string(table).unwrap();
            let is_ours = |line: &&str| line.split_whitespace().nth(1) == Some(ours);
            table.lines().find(is_ours).unwrap_or("removed").to_owned()
        });
        let tables: Vec<_> = tables.collect();
        SystemSnapshot {
            files,
            victim: self.victim_state(),
            shared: tables.join("; "),
            host_name: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap(),
        }
    }

    fn victim_state(&self) -> BTreeMap<&'static str, String> {
        let pid = self.victim.id();
        let read =
            |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let stat = read("stat");
        let after_name: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        // proc(5) counts fields from 1, and the name is the second.
        let field = |number: usize| (*after_name.get(number - 3).unwrap_or(&"")).to_owned();
        // Whether it runs or sleeps does not depend on the command.
        let state = match field(3).as_str() {
            "R" | "S" | "D" => "alive".to_owned(),
            other => other.to_owned(),
        };
        let status = read("status");
        let named = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            line.unwrap_or_default().to_owned()
        };
        let io = Command::new("ionice")
            .arg("-p")
            .arg(pid.to_string())
            .output();
        BTreeMap::from([
            ("state", state),
            ("priority", field(18)),
            ("nice", field(19)),
            ("policy", field(41)),
            ("tracer", named("TracerPid")),
            ("pending", named("ShdPnd")),
            ("processors", named("Cpus_allowed:")),
            ("name", read("comm")),
            ("limits", read("limits")),
            ("oom", read("oom_score_adj")),
            ("dump", read("coredump_filter")),
            (
                "io",
                io.map_or(String::new(), |it| String::from_utf8(it.stdout).unwrap()),
            ),
        ])
    }

    /// The listeners that were reached since the last call.
    pub fn reached_listeners(&self) -> Vec<&'static str> {
        let quiet = |result: std::io::Result<()>| {
            result.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        let mut buffer = [0; 64];
        let mut received = Vec::new();
        for (name, result) in [
            ("TCP", self.tcp.accept().map(drop)),
            ("a UNIX socket", self.stream.accept().map(drop)),
            (
                "an abstract UNIX socket",
                self.abstract_socket.accept().map(drop),
            ),
            ("UDP", self.udp.recv(&mut buffer).map(drop)),
            ("a UNIX datagram", self.datagram.recv(&mut buffer).map(drop)),
        ] {
            if !quiet(result) {
                received.push(name);
            }
        }
        received
    }

    /// Empties the temporary directory.
    pub fn clear_temp_dir(&self) {
        for entry in std::fs::read_dir(self.path("tmp")).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() && !path.is_symlink() {
                true => std::fs::remove_dir_all(path).unwrap(),
                false => std::fs::remove_file(path).unwrap(),
            }
        }
    }
}

impl Drop for SandboxFixture {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        for (kind, id) in &self.ipc_objects {
            let kind = kind.to_ascii_lowercase();
            // A command may have removed it.
            let mut remove = Command::new("ipcrm");
            let _ = remove
                .arg(format!("-{kind}"))
                .arg(id)
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// What a command printed.
#[derive(Debug, Default)]
pub struct CapturedOutput {
    pub out: String,
    pub err: String,
}

impl CapturedOutput {
    /// Secrets and damage markers in the output.
    pub fn reported_damage(&self) -> Vec<String> {
        let both = [&self.out, &self.err];
        let mut damage = Vec::new();
        if both.iter().any(|text| text.contains(PLANTED_SECRET)) {
            damage.push("a secret was printed".to_owned());
        }
        let damaged = both.iter().flat_map(|text| text.lines());
        let damaged = damaged.filter(|line| line.contains(DAMAGE_MARKER));
        damage.extend(damaged.map(str::to_owned));
        damage
    }
}

/// The state of everything that an attack could change.
#[derive(Debug, PartialEq)]
pub struct SystemSnapshot {
    files: BTreeMap<PathBuf, String>,
    victim: BTreeMap<&'static str, String>,
    shared: String,
    host_name: String,
}

impl SystemSnapshot {
    /// The differences to a later snapshot.
    pub fn diff(&self, after: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        let paths = self.files.keys().chain(after.files.keys());
        for path in paths.collect::<std::collections::BTreeSet<_>>() {
            let (before, after) = (self.files.get(path), after.files.get(path));
            if before != after {
                changes.push(format!("{}: {before:?} became {after:?}", path.display()));
            }
        }
        for (what, before) in &self.victim {
            if after.victim[what] != *before {
                changes.push(format!("the victim's {what} became {}", after.victim[what]));
            }
        }
        if self.shared != after.shared {
            changes.push(format!("{} became {}", self.shared, after.shared));
        }
        if self.host_name != after.host_name {
            changes.push(format!("the host is called {}", after.host_name));
        }
        changes
    }
}

/// Records names, types, modes, owners, links, times and contents of a tree. The ctime of an inode
/// stands for its extended attributes and flags, whose changes update it.
fn snapshot_tree(path: &Path, files: &mut BTreeMap<PathBuf, String>) {
    let metadata = path.symlink_metadata().unwrap();
    let content = match metadata.file_type() {
        kind if kind.is_symlink() => std::fs::read_link(path).unwrap().display().to_string(),
        kind if kind.is_file() => String::from_utf8_lossy(&std::fs::read(path).unwrap()).into(),
        _ => String::new(),
    };
    let content: String = content.chars().take(200).collect();
    let entry = format!(
        "{:o} {}:{} links {} mtime {}.{} ctime {}.{} {} bytes {content:?}",
        metadata.mode(),
        metadata.uid(),
        metadata.gid(),
        metadata.nlink(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
        metadata.len(),
    );
    files.insert(path.to_owned(), entry);
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            snapshot_tree(&entry.unwrap().path(), files);
        }
    }
}

/// A temporary directory that every user may enter.
fn shared_temp_dir() -> tempfile::TempDir {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    directory
}

fn plant_tree(tree: &Path) {
    std::fs::create_dir_all(tree.join("dir")).unwrap();
    std::fs::create_dir(tree.join("empty")).unwrap();
    std::fs::write(tree.join("keep"), "kept one\nkept two\nkept three\n").unwrap();
    // Independent of the umask.
    std::fs::set_permissions(tree.join("keep"), PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::write(tree.join("dir/inner"), "inner\n").unwrap();
    write_program(&tree.join("run.sh"), "#!/bin/sh\necho ran\n");
    symlink("keep", tree.join("link")).unwrap();
}

/// An x86-64 program that changes the mode of a file by a 32-bit system call, whose numbers differ.
fn int80_chmod_program(file: &Path) -> Vec<u8> {
    const BASE: u32 = 0x40_0000;
    const HEADERS: u32 = 120;
    let code = |name: u32| {
        let mut code = vec![0xb8, 15, 0, 0, 0, 0xbb]; // mov eax, chmod; mov ebx, name
        code.extend(name.to_le_bytes());
        code.extend([0xb9, 0xff, 1, 0, 0, 0xcd, 0x80]); // mov ecx, 0777; int 0x80
        code.extend([0xb8, 1, 0, 0, 0, 0x31, 0xdb, 0xcd, 0x80]); // exit(0)
        code
    };
    let mut code = code(BASE + HEADERS + u32::try_from(code(0).len()).unwrap());
    code.extend(file.to_str().unwrap().bytes().chain([0]));
    let size = u64::from(HEADERS) + code.len() as u64;
    let mut program = b"\x7fELF\x02\x01\x01".to_vec();
    program.resize(16, 0);
    program.extend([2, 0, 62, 0, 1, 0, 0, 0]); // an executable for x86-64
    for word in [u64::from(BASE + HEADERS), 64, 0] {
        program.extend(word.to_le_bytes());
    }
    program.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    program.extend([1, 0, 0, 0, 5, 0, 0, 0]); // loaded, readable, executable
    for word in [0, u64::from(BASE), u64::from(BASE), size, size, 0x1000] {
        program.extend(word.to_le_bytes());
    }
    program.extend(code);
    program
}

/// Writes a file that only `nobody` may read; needs root.
pub fn write_private_file(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    chown_to_nobody(path);
}

fn plant_secrets(home: &Path) {
    for secret in SECRET_FILES {
        let file = home.join(secret);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, format!("{PLANTED_SECRET}\n")).unwrap();
    }
}

fn plant_repository(tree: &Path) {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .current_dir(tree)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"])
            // The repository need not survive a crash, and disks are slow.
            .args(["-c", "core.fsync=none"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    git(&["init", "--quiet", "--initial-branch=main", "--template="]);
    git(&["add", "--all"]);
    git(&["commit", "--quiet", "--message=First things"]);
    std::fs::write(tree.join("dir/inner"), "inner, changed\n").unwrap();
}

/// Makes `nobody` the owner of a tree.
fn chown_to_nobody(path: &Path) {
    let metadata = path.symlink_metadata().unwrap();
    if metadata.is_symlink() {
        return lchown(path, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    }
    chown(path, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            chown_to_nobody(&entry.unwrap().path());
        }
    }
}

/// The program that starts a reaper as this user.
fn reaper_program_for(user: RunAsUser, root: &Path) -> PathBuf {
    let pvp = Path::new(env!("CARGO_BIN_EXE_pvp"));
    if user == RunAsUser::Root || !is_root() {
        return pvp.to_owned();
    }
    let mut seen = RunAsUser::Nobody.command("test");
    let seen = seen.arg("-x").arg(pvp).status().unwrap().success();
    let pvp = match seen {
        true => pvp.to_owned(),
        false => {
            let seen = root.join("pvp");
            // The binary is large, and a hard link costs nothing.
            if std::fs::hard_link(pvp, &seen).is_err() {
                copy_program(pvp, &seen);
            }
            seen
        }
    };
    let change = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let program = root.join("as-nobody");
    let text = format!("#!/bin/bash\nexec {change} {} \"$@\"\n", pvp.display());
    write_program(&program, text);
    program
}

/// The user's home directory according to /etc/passwd.
fn home_dir(user: RunAsUser) -> String {
    let uid = match user {
        RunAsUser::Root => 0,
        RunAsUser::Nobody if is_root() => NOBODY_UID,
        RunAsUser::Nobody => std::fs::metadata("/proc/self").unwrap().uid(),
    };
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let mut users = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>());
    let user = users.find(|user| user[2] == uid.to_string());
    user.map_or("/".to_owned(), |user| user[5].to_owned())
}

/// Starts a process of the same user in its own process group, with a secret in its environment.
fn spawn_victim(user: RunAsUser) -> Child {
    let victim = user
        .command("sleep")
        .arg("1000")
        .env("VICTIM_SECRET", PLANTED_SECRET)
        .process_group(0)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let name = format!("/proc/{}/comm", victim.id());
    let begun = Instant::now();
    while std::fs::read_to_string(&name).unwrap() != "sleep\n" {
        assert!(begun.elapsed() < TEST_TIMEOUT, "the victim starts");
        std::thread::yield_now();
    }
    victim
}

/// Creates shared memory, a queue or a semaphore as this user; returns its kind and its id.
fn create_ipc_object(user: RunAsUser, what: &str) -> (char, String) {
    let made = user.command("ipcmk").arg(what).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let text = String::from_utf8(made.stdout).unwrap();
    let kind = what.chars().nth(1).unwrap();
    (kind, text.rsplit(' ').next().unwrap().trim().to_owned())
}
