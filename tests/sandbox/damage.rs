//! Commands that would do damage. Everything that they aim at belongs to the test, or cannot
//! happen: where a call would harm the machine its arguments are wrong, and only the way in which
//! it is refused tells whether it got through.

/// Whether a command shows, when it is not confined, that the test would see its damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// It does, whoever runs it.
    Sure,
    /// It does for root.
    AsRoot,
    /// It does for an ordinary user.
    AsNobody,
    /// That depends on the machine.
    Maybe,
    /// It is never run unconfined.
    Untried,
}

pub struct Damage {
    pub name: String,
    pub script: String,
    pub proof: Proof,
    pub kind: Kind,
}

/// What a command aims at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Names and contents below the workspace.
    Inside,
    /// Names and contents elsewhere.
    Outside,
    /// Modes, owners, times and attributes, which Landlock does not know, of files elsewhere.
    Marks,
    Sockets,
    Rest,
}

/// Defined in front of each: `raw` makes a system call and admits when it was not refused,
/// `readable` admits when there is something to read.
const PREAMBLE: &str = r#"
raw() { perl -e '
    my @words = map { /^-?[0-9]+$/ ? $_ + 0 : $_ } @ARGV;
    my $call = shift @words;
    my $answer = syscall($call, @words);
    print "DAMAGED: call $call gave $answer, $!\n"
        unless $answer == -1 && ($! == 1 || $! == 13 || $! == 38);' "$@"; }
readable() { for file; do [ "$(head -c1 "$file" 2>/dev/null | wc -c)" = 1 ] && echo "DAMAGED: $file"; done; }
"#;

pub fn all() -> Vec<Damage> {
    let damage = |name: String, script: String, proof, kind| Damage {
        name,
        script: format!("{PREAMBLE}{script}\n"),
        proof,
        kind,
    };
    let mut all = Vec::new();
    for (entries, outside) in [(FILES, Kind::Outside), (MARKS, Kind::Marks)] {
        for (place, kind) in [("WS", Kind::Inside), ("OUT", outside)] {
            for (name, script, proof) in entries {
                let script = format!("export P=${place}; {script}");
                all.push(damage(format!("{name} in ${place}"), script, *proof, kind));
            }
        }
    }
    let numbered = match cfg!(target_arch = "x86_64") {
        true => [NUMBERED_FILES, NUMBERED].concat(),
        false => Vec::new(),
    };
    for (entries, kind) in [
        (SECRETS, Kind::Rest),
        (SOCKETS, Kind::Sockets),
        (PROCESSES, Kind::Rest),
        (SHARED, Kind::Rest),
        (OTHERS, Kind::Rest),
        (&numbered, Kind::Rest),
    ] {
        for (name, script, proof) in entries {
            all.push(damage(
                (*name).to_owned(),
                (*script).to_owned(),
                *proof,
                kind,
            ));
        }
    }
    all
}

type Entry = (&'static str, &'static str, Proof);

use Proof::{AsNobody, AsRoot, Maybe, Sure, Untried};

/// Run with `P` inside and outside of the workspace.
const FILES: &[Entry] = &[
    ("creating a file", ": > $P/new", Sure),
    ("writing", "echo x > $P/keep", Sure),
    ("writing over noclobber", "echo x >| $P/keep", Sure),
    ("appending", "echo x >> $P/keep", Sure),
    ("reading and writing", "exec 3<>$P/keep; echo x >&3", Sure),
    ("cutting to nothing", "truncate -s 0 $P/keep", Sure),
    ("making longer", "truncate -s +1 $P/keep", Sure),
    (
        "cutting by name",
        "perl -e 'truncate(\"$ENV{P}/keep\", 0)'",
        Sure,
    ),
    (
        "cutting while opening for reading",
        "perl -MFcntl -e 'sysopen(F, \"$ENV{P}/keep\", O_RDONLY|O_TRUNC)'",
        Sure,
    ),
    (
        "dd",
        "dd if=/dev/zero of=$P/keep bs=1 count=1 conv=notrunc",
        Sure,
    ),
    ("tee", "echo x | tee $P/keep", Sure),
    ("sed -i", "sed -i s/kept/lost/ $P/keep", Sure),
    ("cp over", "cp $P/run.sh $P/keep", Sure),
    ("install", "install -m 600 $P/run.sh $P/installed", Sure),
    ("fallocate", "fallocate -l 4096 $P/keep", Sure),
    ("mv", "mv $P/keep $P/kept", Sure),
    ("mv of a directory", "mv $P/dir $P/directory", Sure),
    ("mv out", "mv $P/keep $TMPDIR/", Sure),
    ("mv in", "echo x > $TMPDIR/a; mv -f $TMPDIR/a $P/keep", Sure),
    (
        "rename",
        "perl -e 'rename \"$ENV{P}/keep\", \"$ENV{P}/dir/inner\"'",
        Sure,
    ),
    ("hard link", "ln $P/keep $P/hard", Sure),
    (
        "hard link into the temporary directory",
        "ln $P/keep $TMPDIR/hard; echo x > $TMPDIR/hard",
        Sure,
    ),
    ("symbolic link", "ln -s keep $P/soft", Sure),
    (
        "writing through a symbolic link",
        "ln -s $P/keep $TMPDIR/soft; echo x > $TMPDIR/soft",
        Sure,
    ),
    ("rm", "rm -f $P/keep", Sure),
    ("rm -r", "rm -rf $P/dir", Sure),
    ("find -delete", "find $P/dir -name inner -delete", Sure),
    ("unlink", "perl -e 'unlink \"$ENV{P}/keep\"'", Sure),
    ("mkdir", "mkdir $P/made", Sure),
    ("rmdir", "rmdir $P/empty", Sure),
    ("mkfifo", "mkfifo $P/fifo", Sure),
    ("mknod", "mknod $P/null c 1 3", AsRoot),
    (
        "a socket file",
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) && bind(S, pack_sockaddr_un(\"$ENV{P}/socket\"))'",
        Sure,
    ),
    (
        "writing through /proc/self/fd",
        "exec 3<$P/keep; echo x > /proc/self/fd/3",
        Sure,
    ),
    (
        "writing through /dev/fd",
        "exec 3<$P/keep; echo x >> /dev/fd/3",
        Sure,
    ),
    (
        "a script that writes",
        "echo ': > $P/new' > $TMPDIR/a; bash $TMPDIR/a",
        Sure,
    ),
    (
        "a program that writes",
        "printf '#!/bin/sh\\n: > $P/new\\n' > $TMPDIR/a; sh $TMPDIR/a",
        Sure,
    ),
    (
        "a background process that writes",
        "bash -c 'sleep 0.05; : > $P/new' & wait",
        Sure,
    ),
    (
        "a session of its own that writes",
        "setsid -w bash -c ': > $P/new'",
        Sure,
    ),
    ("working elsewhere", "cd $P && echo x > keep", Sure),
    ("going up", "echo x > $P/dir/../keep", Sure),
    ("patch by perl", "perl -pi -e s/kept/lost/ $P/keep", Sure),
];

/// The same, for what Landlock does not know.
const MARKS: &[Entry] = &[
    (
        "tar",
        "cd $TMPDIR; mkdir dir; echo x > dir/inner; tar c dir | tar x -C $P",
        Sure,
    ),
    ("chmod", "chmod 777 $P/keep", Sure),
    ("chmod -R", "chmod -R go+w $P", Sure),
    (
        "chmod of an open file",
        "perl -e 'open F, \"<$ENV{P}/keep\"; chmod 0777, *F'",
        Sure,
    ),
    ("chown", "chown 1:1 $P/keep", AsRoot),
    ("chgrp to one's own", "chgrp $(id -g) $P/keep", Sure),
    ("chown -h", "chown -h 1 $P/link", AsRoot),
    (
        "chown of an open file",
        "perl -e 'open F, \"<$ENV{P}/keep\"; chown 1, 1, *F'",
        AsRoot,
    ),
    ("touch", "touch $P/keep", Sure),
    ("touch -d", "touch -d 2001-01-01 $P/keep", Sure),
    ("touch -h", "touch -h $P/link", Sure),
    ("utime", "perl -e 'utime 1, 1, \"$ENV{P}/keep\"'", Sure),
    (
        "utime of an open file",
        "perl -e 'open F, \"<$ENV{P}/keep\"; utime 1, 1, *F'",
        Sure,
    ),
    (
        "flags of a file",
        r#"perl -e 'open F, "<$ENV{P}/keep"; my $f = pack "q", 0; ioctl(F, 0x80086601, $f); ioctl(F, 0x40086602, pack("q", 0x40 | unpack "q", $f))'"#,
        Sure,
    ),
];

const SECRETS: &[Entry] = &[
    ("cat of a key", "cat $SECRETS/.ssh/id_rsa", Sure),
    ("credentials", "cat $SECRETS/.aws/credentials", Sure),
    ("netrc", "head $SECRETS/.netrc", Sure),
    (
        "other logins",
        "cat $SECRETS/.git-credentials $SECRETS/.docker/config.json $SECRETS/.kube/config $SECRETS/.config/gh/hosts.yml",
        Sure,
    ),
    ("what somebody typed", "tail $SECRETS/.bash_history", Sure),
    ("grep -r of a home", "grep -r . $SECRETS", Sure),
    ("another temporary directory", "grep -r . $OTHER", Sure),
    (
        "listing a home",
        "ls -A $SECRETS | sed 's/^/DAMAGED: /'",
        Sure,
    ),
    ("listing /tmp", "ls /tmp | sed 's/^/DAMAGED: /'", Sure),
    ("reading by bash", "echo $(<$SECRETS/.netrc)", Sure),
    (
        "copying and reading",
        "cp $SECRETS/.netrc $TMPDIR/a; cat $TMPDIR/a",
        Sure,
    ),
    (
        "linking and reading",
        "ln $SECRETS/.netrc $TMPDIR/a; cat $TMPDIR/a",
        Sure,
    ),
    (
        "renaming and reading",
        "mv $SECRETS/.netrc $TMPDIR/a; cat $TMPDIR/a",
        Sure,
    ),
    (
        "symbolic link and reading",
        "ln -s $SECRETS/.netrc $TMPDIR/a; cat $TMPDIR/a",
        Sure,
    ),
    (
        "reading through /proc/self/cwd",
        "cd $SECRETS; cat /proc/self/cwd/.netrc",
        Sure,
    ),
    (
        "reading through /proc/self/root",
        "cat /proc/self/root$SECRETS/.netrc",
        Sure,
    ),
    (
        "reading through the victim's root",
        "cat /proc/$VICTIM/root$SECRETS/.netrc",
        Sure,
    ),
    (
        "reading through the parent's root",
        "cat /proc/$PPID/root$SECRETS/.netrc",
        Sure,
    ),
    (
        "reading through init's root",
        "cat /proc/1/root$SECRETS/.netrc",
        Maybe,
    ),
    (
        "git of another place",
        "git -c safe.directory=* diff --no-index /dev/null $SECRETS/.netrc",
        Sure,
    ),
    (
        "passwords",
        "readable /etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/security/opasswd /etc/.pwd.lock /etc/sudoers",
        Maybe,
    ),
    (
        "private keys of the machine",
        "readable /etc/ssl/private/* /etc/ssh/ssh_host_*_key /etc/pki/tls/private/*",
        Maybe,
    ),
    (
        "private settings of programs",
        "readable $(find /etc -maxdepth 1 -type f ! -perm -004 2>/dev/null)",
        Maybe,
    ),
    (
        "root's files",
        "readable /root/* /root/.??*; ls /root /root/.ssh | sed 's/^/DAMAGED: /'",
        Maybe,
    ),
    (
        "homes",
        "readable /home/*/* /home/*/.??*; ls /home | sed 's/^/DAMAGED: /'",
        Maybe,
    ),
    (
        "databases",
        "readable /var/lib/*/*/* /var/lib/[!da]*/*; ls /var/lib | sed 's/^/DAMAGED: /'",
        Maybe,
    ),
    (
        "logs",
        "readable /var/log/* /var/log/*/*; ls /var/log | sed 's/^/DAMAGED: /'",
        Maybe,
    ),
    (
        "mail and jobs",
        "readable /var/mail/* /var/spool/*/* /var/spool/cron/*/*",
        Maybe,
    ),
    (
        "what runs",
        "readable /run/* /run/*/*; ls /run | sed 's/^/DAMAGED: /'",
        Maybe,
    ),
    (
        "memory by name",
        "readable /dev/shm/*; ls /dev/shm | sed 's/^/DAMAGED: /'; echo x > /dev/shm/pvp-sandbox-test && echo DAMAGED; rm -f /dev/shm/pvp-sandbox-test",
        Sure,
    ),
    (
        "the machine's memory",
        "readable /proc/kcore /dev/mem",
        Maybe,
    ),
    (
        "the kernel's log",
        "timeout 1 head -c1 /dev/kmsg | grep -q . && echo DAMAGED; timeout 1 head -c1 /proc/kmsg | grep -q . && echo DAMAGED; dmesg 2>/dev/null | grep -q . && echo DAMAGED",
        Untried,
    ),
    (
        "tracing",
        "ls /sys/kernel/tracing /sys/kernel/debug | sed 's/^/DAMAGED: /'",
        Maybe,
    ),
    (
        "disks",
        "readable $(find /dev -type b 2>/dev/null) $(lsblk -nrpo NAME 2>/dev/null) /dev/vda /dev/sda /dev/nvme0n1 /dev/xvda",
        Maybe,
    ),
    (
        "the victim's environment",
        "cat /proc/$VICTIM/environ | tr '\\0' '\\n'",
        Sure,
    ),
    (
        "the parent's environment",
        "readable /proc/$PPID/environ /proc/$PPID/maps; readlink /proc/$PPID/fd/* | sed 's/^/DAMAGED: /'",
        Untried,
    ),
    (
        "the victim's memory",
        "readable /proc/$VICTIM/maps /proc/$VICTIM/auxv /proc/$VICTIM/smaps",
        Maybe,
    ),
    (
        "the victim's files",
        "ls -l /proc/$VICTIM/fd /proc/$VICTIM/map_files | grep -e '->' | sed 's/^/DAMAGED: /'",
        Sure,
    ),
    (
        "the victim's directory",
        "readlink /proc/$VICTIM/cwd /proc/$VICTIM/exe | sed 's/^/DAMAGED: /'",
        Sure,
    ),
];

const SOCKETS: &[Entry] = &[
    ("TCP", "echo x > /dev/tcp/127.0.0.1/$TCP", Sure),
    (
        "TCP by perl",
        "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0); connect(S, pack_sockaddr_in($ENV{TCP}, INADDR_LOOPBACK))'",
        Sure,
    ),
    (
        "TCP without connecting first",
        "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0); send(S, \"x\", 0x20000000, pack_sockaddr_in($ENV{TCP}, INADDR_LOOPBACK))'",
        Maybe,
    ),
    (
        "TCP of many paths",
        "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 262); connect(S, pack_sockaddr_in($ENV{TCP}, INADDR_LOOPBACK))'",
        Maybe,
    ),
    (
        "TCP listening",
        "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0) && bind(S, pack_sockaddr_in(0, INADDR_LOOPBACK)) && listen(S, 1) && print \"DAMAGED\"'",
        Sure,
    ),
    (
        "listening without binding",
        "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0) && listen(S, 1) && print \"DAMAGED\"'",
        Sure,
    ),
    ("UDP", "echo x > /dev/udp/127.0.0.1/$UDP", Sure),
    (
        "UDP by perl",
        "perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 0); send(S, \"x\", 0, pack_sockaddr_in($ENV{UDP}, INADDR_LOOPBACK))'",
        Sure,
    ),
    (
        "a UNIX socket",
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, pack_sockaddr_un($ENV{STREAM}))'",
        Sure,
    ),
    (
        "a UNIX datagram",
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_DGRAM, 0); send(S, \"x\", 0, pack_sockaddr_un($ENV{DATAGRAM}))'",
        Sure,
    ),
    (
        "a datagram of a pair",
        "perl -MSocket -e 'socketpair(S, T, AF_UNIX, SOCK_DGRAM, 0); send(S, \"x\", 0, pack_sockaddr_un($ENV{DATAGRAM})); connect(S, pack(\"S\", 0)); send(S, \"x\", 0, pack_sockaddr_un($ENV{DATAGRAM}))'",
        Maybe,
    ),
    (
        "an abstract UNIX socket",
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, pack(\"S\", AF_UNIX) . \"\\0$ENV{NAME}\")'",
        Sure,
    ),
    (
        "netlink",
        "perl -e 'socket(S, 16, 3, 0) && print \"DAMAGED\"'",
        Sure,
    ),
    (
        "raw sockets",
        "perl -e 'socket(S, 2, 3, 1) && print \"DAMAGED\"'",
        AsRoot,
    ),
    (
        "packets",
        "perl -e 'socket(S, 17, 3, 768) && print \"DAMAGED\"'",
        Maybe,
    ),
    (
        "machines nearby",
        "perl -e 'socket(S, 40, 1, 0) && print \"DAMAGED\"'",
        Maybe,
    ),
    (
        "the kernel's ciphers",
        "perl -e 'socket(S, 38, 5, 0) && print \"DAMAGED\"'",
        Maybe,
    ),
    (
        "ping",
        "ping -c1 -W1 127.0.0.1 >/dev/null 2>&1 && echo DAMAGED",
        Maybe,
    ),
];

const PROCESSES: &[Entry] = &[
    ("kill", "kill $VICTIM", Sure),
    ("kill -9", "/bin/kill -9 $VICTIM", Sure),
    ("kill -STOP", "kill -STOP $VICTIM", Sure),
    ("kill of its group", "kill -- -$VICTIM", Sure),
    ("kill by perl", "perl -e 'kill 15, $ENV{VICTIM}'", Sure),
    (
        "asking whether it lives",
        "kill -0 $VICTIM && echo DAMAGED",
        Sure,
    ),
    ("pkill", "pkill -g $VICTIM sleep", Maybe),
    (
        "kill of the reaper",
        "kill -9 $PPID && echo DAMAGED",
        Untried,
    ),
    (
        "a signal by a pipe",
        r#"perl -e 'pipe R, W; fcntl(R, 8, $ENV{VICTIM}+0) && fcntl(R, 4, 0x2000); syswrite W, "x"; sleep 1'"#,
        Sure,
    ),
    ("renice", "renice -n 5 -p $VICTIM", Sure),
    ("taskset", "taskset -p 1 $VICTIM", Maybe),
    ("ionice", "ionice -c 3 -p $VICTIM", Sure),
    ("chrt", "chrt --idle -p 0 $VICTIM", Sure),
    ("prlimit", "prlimit --pid $VICTIM --nofile=7:7", Sure),
    (
        "its part in running out of memory",
        "echo 500 > /proc/$VICTIM/oom_score_adj",
        Sure,
    ),
    ("its name", "echo other > /proc/$VICTIM/comm", Maybe),
    (
        "what it dumps",
        "echo 0 > /proc/$VICTIM/coredump_filter",
        Sure,
    ),
    (
        "its memory",
        "perl -MFcntl -e 'sysopen(F, \"/proc/$ENV{VICTIM}/mem\", O_RDWR) && print \"DAMAGED\"'",
        Sure,
    ),
    (
        "its memory for reading",
        "perl -MFcntl -e 'sysopen(F, \"/proc/$ENV{VICTIM}/mem\", O_RDONLY) && print \"DAMAGED\"'",
        Sure,
    ),
    (
        "its memory's marks",
        "(echo 1 > /proc/$VICTIM/clear_refs) 2>/dev/null && echo DAMAGED",
        Sure,
    ),
    (
        "one's own memory",
        "perl -MFcntl -e 'sysopen(F, \"/proc/self/mem\", O_RDWR) && print \"DAMAGED\"'",
        Sure,
    ),
    (
        "one's own part in running out of memory",
        "(echo 10 > /proc/self/oom_score_adj) 2>/dev/null && echo DAMAGED",
        Sure,
    ),
    (
        "a program that changes the user",
        "[ $(id -u) != 0 ] && [ \"$($WS/setuid-id -u)\" = 0 ] && echo DAMAGED",
        AsNobody,
    ),
    ("su", "su root -c 'echo DAMAGED' </dev/null", Untried),
    ("sudo", "sudo -n sh -c 'echo DAMAGED' </dev/null", Untried),
    (
        "becoming somebody else",
        "setpriv --reuid=1 --clear-groups echo DAMAGED",
        AsRoot,
    ),
    (
        "giving oneself capabilities",
        "perl -e 'while (<STDIN>) { /^Cap(Eff|Prm):\\s*(\\S+)/ and hex($2) & ~4 and print \"DAMAGED: $_\" }' < /proc/self/status",
        AsRoot,
    ),
];

const SHARED: &[Entry] = &[
    ("removing shared memory", "ipcrm -m $SHM", Sure),
    ("removing a queue", "ipcrm -q $MSG", Sure),
    ("removing a semaphore", "ipcrm -s $SEM", Sure),
    (
        "sending a message",
        "perl -e 'msgsnd($ENV{MSG}, pack(\"l! a*\", 1, \"x\"), 0)'",
        Sure,
    ),
    (
        "taking a message",
        "perl -e 'my $m; $! = 0; msgrcv($ENV{MSG}, $m, 10, 0, 04000); print \"DAMAGED: $!\" unless $! == 1'",
        Sure,
    ),
    (
        "changing a semaphore",
        "perl -e 'semop($ENV{SEM}, pack(\"s!3\", 0, 1, 04000)) && print \"DAMAGED\"'",
        Sure,
    ),
    (
        "writing shared memory",
        "perl -e 'shmwrite($ENV{SHM}, \"x\", 0, 1) && print \"DAMAGED\"'",
        Sure,
    ),
    (
        "reading shared memory",
        "perl -e 'my $m; shmread($ENV{SHM}, $m, 0, 1) && print \"DAMAGED\"'",
        Sure,
    ),
    (
        "making shared memory",
        "perl -e 'my $id = shmget(0, 64, 01600); defined $id && print \"DAMAGED\"; shmctl($id, 0, 0) if defined $id'",
        Sure,
    ),
];

const OTHERS: &[Entry] = &[
    ("a user namespace", "unshare -U echo DAMAGED", Maybe),
    ("a mount namespace", "unshare -m echo DAMAGED", AsRoot),
    ("a network namespace", "unshare -n echo DAMAGED", AsRoot),
    (
        "being root of a namespace",
        "unshare -r -m echo DAMAGED",
        Maybe,
    ),
    (
        "entering a namespace",
        "nsenter -t $$ -u echo DAMAGED",
        AsRoot,
    ),
    (
        "mount",
        "mkdir $TMPDIR/m; mount -t tmpfs none $TMPDIR/m && echo DAMAGED && umount $TMPDIR/m",
        AsRoot,
    ),
    (
        "mount --bind",
        "mkdir $TMPDIR/m; mount --bind $SECRETS $TMPDIR/m && cat $TMPDIR/m/.netrc && umount $TMPDIR/m",
        AsRoot,
    ),
    ("chroot", "chroot / echo DAMAGED", AsRoot),
    (
        "a device in the temporary directory",
        "mknod $TMPDIR/zero c 1 5 && echo DAMAGED",
        AsRoot,
    ),
    (
        "a disk in the temporary directory",
        "mknod $TMPDIR/disk b 7 200 && echo DAMAGED",
        AsRoot,
    ),
    (
        "settings of the kernel",
        "perl -MFcntl -e 'sysopen(F, \"/proc/sys/kernel/hostname\", O_WRONLY) && print \"DAMAGED\"; sysopen(F, \"/proc/sys/vm/drop_caches\", O_WRONLY) && print \"DAMAGED\"'",
        AsRoot,
    ),
    (
        "the kernel's keys",
        "perl -MFcntl -e 'sysopen(F, \"/proc/sysrq-trigger\", O_WRONLY) && print \"DAMAGED\"'",
        Maybe,
    ),
    (
        "settings of devices",
        "perl -MFcntl -e 'for (glob(\"/sys/block/*/queue/read_ahead_kb /sys/power/state /sys/kernel/mm/*/*\")) { sysopen(F, $_, O_WRONLY) && print \"DAMAGED: $_\\n\" }'",
        Maybe,
    ),
    (
        "control groups",
        "mkdir /sys/fs/cgroup/pvp-sandbox-test /sys/fs/cgroup/unified/pvp-sandbox-test 2>/dev/null; rmdir /sys/fs/cgroup/pvp-sandbox-test /sys/fs/cgroup/unified/pvp-sandbox-test 2>/dev/null && echo DAMAGED",
        Maybe,
    ),
    (
        "devices",
        "perl -MFcntl -e 'for (glob(\"/dev/loop* /dev/ram* /dev/vd* /dev/sd* /dev/nvme* /dev/mem /dev/kmsg /dev/ptmx /dev/console /dev/tty0 /dev/fuse /dev/kvm /dev/net/tun\"), map { \"/dev/$_\" } qw(vda sda loop0 loop-control mem kmsg ptmx console fuse kvm)) { sysopen(F, $_, O_WRONLY) && print \"DAMAGED: $_\\n\" }'",
        AsRoot,
    ),
    (
        "a core",
        "ulimit -c unlimited; bash -c 'kill -SEGV $$'",
        Untried,
    ),
    (
        "typing for somebody",
        "perl -e 'my $c = \"x\"; ioctl(STDOUT, 0x5412, $c); print \"DAMAGED: $!\" unless $! == 1'",
        Sure,
    ),
    (
        "a terminal",
        "perl -MFcntl -e 'sysopen(F, \"/dev/tty\", O_RDWR) && print \"DAMAGED\"'; echo x > /dev/pts/0 && echo DAMAGED",
        Untried,
    ),
    (
        "jobs",
        "echo '* * * * * true' > /etc/cron.d/pvp-sandbox-test && echo DAMAGED && rm -f /etc/cron.d/pvp-sandbox-test",
        Untried,
    ),
    (
        "git commit",
        "git -c user.name=a -c user.email=a@b commit -qam x",
        Sure,
    ),
    ("git checkout", "git checkout -q -- dir/inner", Sure),
    ("git config", "git config a.b c", Sure),
    ("git gc", "git gc -q", Sure),
    ("git branch", "git branch other", Sure),
    (
        "git stash",
        "git -c user.name=a -c user.email=a@b stash -q",
        Sure,
    ),
    (
        "git clean",
        "git clean -fdqx; git rm -q --cached keep",
        Sure,
    ),
];

/// Calls by number, because no program makes them.
const NUMBERED_FILES: &[Entry] = &[
    ("creat", "raw 85 $WS/new 420", Sure),
    ("an attribute", "raw 188 $WS/keep user.x v 1 0", Maybe),
    (
        "an attribute of a link",
        "raw 189 $WS/link trusted.x v 1 0",
        AsRoot,
    ),
    (
        "an attribute of an open file",
        "perl -e 'open F, \"<$ENV{WS}/keep\"; my ($n, $v) = (\"user.x\", \"v\"); syscall(190, fileno(F), $n, $v, 1, 0)'",
        Maybe,
    ),
    ("removing an attribute", "raw 197 $WS/keep user.y", Untried),
    (
        "an access list",
        "perl -e 'my ($f, $n) = (\"$ENV{WS}/keep\", \"system.posix_acl_access\"); my $a = pack(\"L\", 2) . pack(\"SSL\", 1, 6, 0xffffffff) . pack(\"SSL\", 2, 7, 1) . pack(\"SSL\", 4, 4, 0xffffffff) . pack(\"SSL\", 16, 7, 0xffffffff) . pack(\"SSL\", 32, 4, 0xffffffff); syscall(188, $f, $n, $a, length $a, 0)'",
        Maybe,
    ),
    (
        "an attribute by a younger call",
        r#"perl -e 'my ($f, $n, $v) = ("$ENV{OUT}/keep", "user.x", "v"); my $a = pack("pLL", $v, 1, 0); syscall(463, -100, $f, 0, $n, $a, 16)'"#,
        Maybe,
    ),
    (
        "flags by a younger call",
        r#"perl -e 'my $f = "$ENV{OUT}/keep"; my $a = pack("QL4", 0x80, 0, 0, 0, 0); syscall(469, -100, $f, $a, 24, 0)'"#,
        Maybe,
    ),
    (
        "project of a file",
        r#"perl -e 'open F, "<$ENV{OUT}/keep"; my $a = "\0" x 28; ioctl(F, 0x801c581f, $a); substr($a, 0, 4) = pack("L", 0x80 | unpack "L", $a); ioctl(F, 0x401c5820, $a)'"#,
        Sure,
    ),
    (
        "exchanging names",
        "raw 316 -100 $WS/keep -100 $WS/run.sh 2",
        Sure,
    ),
    (
        "a file without a name",
        "perl -e 'my ($d, $n) = ($ENV{OUT}, \"$ENV{OUT}/new\"); my $fd = syscall(257, -100, $d, 0x410001, 0600); my $p = \"/proc/self/fd/$fd\"; syscall(265, -100, $p, -100, $n, 0x400)'",
        Maybe,
    ),
    (
        "opening by handle",
        r#"perl -e 'my ($f, $h, $m) = ("$ENV{SECRETS}/.netrc", pack("Ll", 128, 0) . "\0" x 128, "\0" x 8); syscall(303, -100, $f, $h, $m, 0) and die; open R, "<", $ENV{WS}; my $fd = syscall(304, fileno(R), $h, 0); print "DAMAGED" if $fd >= 0'"#,
        AsRoot,
    ),
    ("fchmodat2", "raw 452 -100 $OUT/keep 511 0", Sure),
];

const NUMBERED: &[Entry] = &[
    ("tgkill", "raw 234 $VICTIM $VICTIM 15", Sure),
    ("tkill", "raw 200 $VICTIM 15", Sure),
    (
        "rt_sigqueueinfo",
        r#"perl -e 'my $i = pack("l3", 15, 0, -1) . "\0" x 116; syscall(129, $ENV{VICTIM}+0, 15, $i) == 0 && print "DAMAGED"'"#,
        Sure,
    ),
    (
        "pidfd_send_signal",
        "perl -e 'my $fd = syscall(434, $ENV{VICTIM}+0, 0); syscall(424, $fd, 15, 0, 0) == 0 && print \"DAMAGED\"'",
        Sure,
    ),
    (
        "pidfd_getfd",
        "perl -e 'my $fd = syscall(434, $ENV{VICTIM}+0, 0); syscall(438, $fd, 0, 0) >= 0 && print \"DAMAGED\"'",
        Sure,
    ),
    ("ptrace attach", "raw 101 16 $VICTIM 0 0", Sure),
    ("ptrace seize", "raw 101 16902 $VICTIM 0 0", Sure),
    ("process_vm_writev", "raw 311 $VICTIM 0 0 0 0 0", Maybe),
    ("process_vm_readv", "raw 310 $VICTIM 0 0 0 0 0", Maybe),
    (
        "setpriority of a user who is not there",
        "raw 141 2 4294901 1",
        Untried,
    ),
    (
        "setpriority of the victim's group",
        "raw 141 1 $VICTIM 3",
        Sure,
    ),
    ("ioprio_set", "raw 251 1 $VICTIM 24576", Sure),
    (
        "sched_setaffinity",
        r#"perl -e 'my $m = pack("Q", 1); syscall(203, $ENV{VICTIM}+0, 8, $m) == 0 && print "DAMAGED"'"#,
        Sure,
    ),
    (
        "sched_setparam",
        r#"perl -e 'my $p = pack("l", 0); syscall(142, $ENV{VICTIM}+0, $p) == 0 && print "DAMAGED"'"#,
        Sure,
    ),
    (
        "sched_setattr",
        r#"perl -e 'my $a = pack("LLQlLQQQ", 48, 5, 0, 0, 0, 0, 0, 0); syscall(314, $ENV{VICTIM}+0, $a, 0) == 0 && print "DAMAGED"'"#,
        Sure,
    ),
    ("migrate_pages", "raw 256 $VICTIM 0 0 0", Maybe),
    ("move_pages", "raw 279 $VICTIM 0 0 0 0 0", Maybe),
    ("kcmp", "raw 312 $VICTIM $VICTIM 0 0 0", Sure),
    (
        "process_madvise",
        "perl -e 'my $fd = syscall(434, $ENV{VICTIM}+0, 0); syscall(440, $fd, 0, 0, 20, 0) >= 0 && print \"DAMAGED\"'",
        Maybe,
    ),
    (
        "watching the victim run",
        r#"perl -e 'my $a = pack("LLQ", 1, 128, 9) . "\0" x 112; syscall(298, $a, $ENV{VICTIM}+0, -1, -1, 0) >= 0 && print "DAMAGED"'"#,
        Maybe,
    ),
    (
        "semtimedop",
        r#"perl -e 'my $s = pack("s!3", 0, 1, 04000); syscall(220, $ENV{SEM}+0, $s, 1, 0) == 0 && print "DAMAGED"'"#,
        Sure,
    ),
    (
        "a user namespace by clone",
        r#"perl -e 'my $pid = syscall(56, 0x10000011, 0, 0, 0, 0); if ($pid == 0) { syscall(60, 0) } print "DAMAGED" if $pid > 0'"#,
        Maybe,
    ),
    (
        "a user namespace by clone3",
        r#"perl -e 'my $a = pack("Q11", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0); my $pid = syscall(435, $a, 88); if ($pid == 0) { syscall(60, 0) } print "DAMAGED" if $pid > 0'"#,
        Maybe,
    ),
    ("unshare", "raw 272 131072", AsRoot),
    (
        "setns",
        "perl -e 'open F, \"</proc/self/ns/uts\"; syscall(308, fileno(F), 0) == 0 && print \"DAMAGED\"'",
        AsRoot,
    ),
    ("pivot_root", "raw 155 $OUT $OUT", Untried),
    ("umount2", "raw 166 $OUT 0", Untried),
    ("fsopen", "raw 430 tmpfs 0", AsRoot),
    ("open_tree", "raw 428 -100 $OUT 1", AsRoot),
    ("mount_setattr", "raw 442 -100 $OUT 0 0 0", Untried),
    ("open_tree_attr", "raw 467 -100 $OUT 1 0 0", AsRoot),
    (
        "io_uring_setup",
        "raw 425 1 \"$(printf '%0256d' 0 | tr 0 .)\"",
        Maybe,
    ),
    ("io_uring_enter", "raw 426 -1 0 0 0 0 0", Maybe),
    ("bpf", "raw 321 0 0 0", Maybe),
    ("perf_event_open", "raw 298 0 0 -1 -1 0", Maybe),
    ("userfaultfd", "raw 323 1", Maybe),
    ("keyctl", "raw 250 0 -3 0", Sure),
    ("add_key", "raw 248 user pvp-sandbox-test x 1 -2", Sure),
    ("request_key", "raw 249 user pvp-sandbox-test 0 0", Sure),
    ("a session's keys", "raw 250 1 0", Sure),
    ("mq_open", "raw 240 pvp-sandbox-test 0 384 0", Sure),
    ("mq_unlink", "raw 241 pvp-sandbox-test", Sure),
    (
        "sethostname",
        "raw 170 \"$(uname -n)\" ${#HOSTNAME}",
        AsRoot,
    ),
    ("setdomainname", "raw 171 0 -1", Untried),
    ("settimeofday", "raw 164 0 1", Untried),
    ("clock_settime", "raw 227 99 0", Untried),
    ("adjtimex", "raw 159 0", Untried),
    ("clock_adjtime", "raw 305 99 0", Untried),
    (
        "reboot with numbers that mean nothing",
        "raw 169 1 2 3 0",
        Untried,
    ),
    ("kexec_load", "raw 246 0 99999 0 4294967295", Untried),
    ("init_module of garbage", "raw 175 garbage 7 ''", Untried),
    ("finit_module of nothing", "raw 313 -1 '' 0", Untried),
    (
        "delete_module of nothing",
        "raw 176 pvp_no_such_module 2048",
        Untried,
    ),
    ("swapon of nothing", "raw 167 $OUT/none 0", Untried),
    ("swapoff of nothing", "raw 168 $OUT/none", Untried),
    ("acct of nothing", "raw 163 $OUT/none", Untried),
    ("quotactl", "raw 179 -1 0 0 0", Untried),
    ("syslog", "raw 103 10 0 0", AsRoot),
    ("fanotify_init", "raw 300 0 0", AsRoot),
    ("iopl", "raw 172 0", Untried),
    ("ioperm", "raw 173 0 0 1", Untried),
    ("modify_ldt", "raw 154 0 0 0", Sure),
    ("a second numbering: socket", "raw 1073741865 2 1 0", Maybe),
    (
        "a second numbering: chmod",
        "raw 1073741914 $OUT/keep 511",
        Maybe,
    ),
    (
        "a second numbering: mount",
        "raw 1073741989 0 0 0 0 0",
        Untried,
    ),
    ("a 32-bit call", "$WS/old-call", Maybe),
];
