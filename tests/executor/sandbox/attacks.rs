//! Commands that try to do damage. Their targets belong to the test; where a system call would harm
//! the machine, its arguments are invalid, and only the error tells whether it got through the
//! sandbox.

use crate::support::skip::skip;

/// For which users an attack has a visible effect without a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnconfinedEffect {
    /// For every user.
    Always,
    /// For root.
    AsRoot,
    /// For an ordinary user.
    AsNobody,
    /// It depends on the machine.
    MachineDependent,
    /// It is never run unconfined.
    NotRun,
}

pub struct Attack {
    pub name: String,
    pub script: String,
    pub unconfined: UnconfinedEffect,
    pub target: AttackTarget,
}

/// What an attack targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttackTarget {
    /// Names and contents below the workspace.
    Inside,
    /// Names and contents elsewhere.
    Outside,
    /// Modes, owners, times and attributes of files elsewhere, which Landlock does not restrict.
    Metadata,
    Sockets,
    Other,
}

/// Shell functions for every attack: `raw` makes a system call and reports damage unless it was
/// refused, `readable` reports damage if a file can be read.
const PREAMBLE: &str = r#"
raw() { perl -e '
    my @words = map { /^-?[0-9]+$/ ? $_ + 0 : $_ } @ARGV;
    my $call = shift @words;
    my $answer = syscall($call, @words);
    print "DAMAGED: call $call gave $answer, $!\n"
        unless $answer == -1 && ($! == 1 || $! == 13 || $! == 38);' "$@"; }
readable() { for file; do [ "$(head -c1 "$file" 2>/dev/null | wc -c)" = 1 ] && echo "DAMAGED: $file"; done; }
"#;

pub fn all_attacks() -> Vec<Attack> {
    let attack = |name: String, script: String, proof, kind| Attack {
        name,
        script: format!("{PREAMBLE}{script}\n"),
        unconfined: proof,
        target: kind,
    };
    let mut all = Vec::new();
    for (entries, outside) in [
        (FILES, AttackTarget::Outside),
        (METADATA, AttackTarget::Metadata),
    ] {
        for (base, kind) in [("WS", AttackTarget::Inside), ("OUT", outside)] {
            for (name, script, proof) in entries {
                let script = format!("export P=${base}; {script}");
                all.push(attack(format!("{name} in ${base}"), script, *proof, kind));
            }
        }
    }
    let numbered = match cfg!(target_arch = "x86_64") {
        true => [FILE_SYSCALLS, SYSCALLS].concat(),
        false => {
            skip("the numbers of system calls are known for x86-64 only");
            Vec::new()
        }
    };
    for (entries, kind) in [
        (SECRETS, AttackTarget::Other),
        (SOCKETS, AttackTarget::Sockets),
        (PROCESSES, AttackTarget::Other),
        (IPC, AttackTarget::Other),
        (MISCELLANEOUS, AttackTarget::Other),
        (&numbered, AttackTarget::Other),
    ] {
        for (name, script, proof) in entries {
            all.push(attack(
                (*name).to_owned(),
                (*script).to_owned(),
                *proof,
                kind,
            ));
        }
    }
    all
}

type AttackRow = (&'static str, &'static str, UnconfinedEffect);

use UnconfinedEffect::{Always, AsNobody, AsRoot, MachineDependent, NotRun};

/// Run with `P` inside and outside the workspace.
const FILES: &[AttackRow] = &[
    ("creating a file", ": > $P/new", Always),
    ("writing", "echo x > $P/keep", Always),
    ("writing over noclobber", "echo x >| $P/keep", Always),
    ("appending", "echo x >> $P/keep", Always),
    ("reading and writing", "exec 3<>$P/keep; echo x >&3", Always),
    ("cutting to nothing", "truncate -s 0 $P/keep", Always),
    ("making longer", "truncate -s +1 $P/keep", Always),
    (
        "cutting by name",
        "perl -e 'truncate(\"$ENV{P}/keep\", 0)'",
        Always,
    ),
    (
        "cutting while opening for reading",
        "perl -MFcntl -e 'sysopen(F, \"$ENV{P}/keep\", O_RDONLY|O_TRUNC)'",
        Always,
    ),
    (
        "dd",
        "dd if=/dev/zero of=$P/keep bs=1 count=1 conv=notrunc",
        Always,
    ),
    ("tee", "echo x | tee $P/keep", Always),
    ("sed -i", "sed -i s/kept/lost/ $P/keep", Always),
    ("cp over", "cp $P/run.sh $P/keep", Always),
    ("install", "install -m 600 $P/run.sh $P/installed", Always),
    ("fallocate", "fallocate -l 4096 $P/keep", Always),
    ("mv", "mv $P/keep $P/kept", Always),
    ("mv of a directory", "mv $P/dir $P/directory", Always),
    ("mv out", "mv $P/keep $TMPDIR/", Always),
    (
        "mv in",
        "echo x > $TMPDIR/a; mv -f $TMPDIR/a $P/keep",
        Always,
    ),
    (
        "rename",
        "perl -e 'rename \"$ENV{P}/keep\", \"$ENV{P}/dir/inner\"'",
        Always,
    ),
    ("hard link", "ln $P/keep $P/hard", Always),
    (
        "hard link into the temporary directory",
        "ln $P/keep $TMPDIR/hard; echo x > $TMPDIR/hard",
        Always,
    ),
    ("symbolic link", "ln -s keep $P/soft", Always),
    (
        "writing through a symbolic link",
        "ln -s $P/keep $TMPDIR/soft; echo x > $TMPDIR/soft",
        Always,
    ),
    ("rm", "rm -f $P/keep", Always),
    ("rm -r", "rm -rf $P/dir", Always),
    ("find -delete", "find $P/dir -name inner -delete", Always),
    ("unlink", "perl -e 'unlink \"$ENV{P}/keep\"'", Always),
    ("mkdir", "mkdir $P/made", Always),
    ("rmdir", "rmdir $P/empty", Always),
    ("mkfifo", "mkfifo $P/fifo", Always),
    ("mknod", "mknod $P/null c 1 3", AsRoot),
    (
        "a socket file",
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) && bind(S, pack_sockaddr_un(\"$ENV{P}/socket\"))'",
        Always,
    ),
    (
        "writing through /proc/self/fd",
        "exec 3<$P/keep; echo x > /proc/self/fd/3",
        Always,
    ),
    (
        "writing through /dev/fd",
        "exec 3<$P/keep; echo x >> /dev/fd/3",
        Always,
    ),
    (
        "a script that writes",
        "echo ': > $P/new' > $TMPDIR/a; bash $TMPDIR/a",
        Always,
    ),
    (
        "a program that writes",
        "printf '#!/bin/sh\\n: > $P/new\\n' > $TMPDIR/a; sh $TMPDIR/a",
        Always,
    ),
    (
        "a background process that writes",
        "bash -c 'sleep 0.05; : > $P/new' & wait",
        Always,
    ),
    (
        "a session of its own that writes",
        "setsid -w bash -c ': > $P/new'",
        Always,
    ),
    ("working elsewhere", "cd $P && echo x > keep", Always),
    ("going up", "echo x > $P/dir/../keep", Always),
    ("patch by perl", "perl -pi -e s/kept/lost/ $P/keep", Always),
];

/// The same, for what Landlock does not restrict.
const METADATA: &[AttackRow] = &[
    (
        "tar",
        "cd $TMPDIR; mkdir dir; echo x > dir/inner; tar c dir | tar x -C $P",
        Always,
    ),
    ("chmod", "chmod 777 $P/keep", Always),
    ("chmod -R", "chmod -R go+w $P", Always),
    (
        "chmod of an open file",
        "perl -e 'open F, \"<$ENV{P}/keep\"; chmod 0777, *F'",
        Always,
    ),
    ("chown", "chown 1:1 $P/keep", AsRoot),
    ("chgrp to one's own", "chgrp $(id -g) $P/keep", Always),
    ("chown -h", "chown -h 1 $P/link", AsRoot),
    (
        "chown of an open file",
        "perl -e 'open F, \"<$ENV{P}/keep\"; chown 1, 1, *F'",
        AsRoot,
    ),
    ("touch", "touch $P/keep", Always),
    ("touch -d", "touch -d 2001-01-01 $P/keep", Always),
    ("touch -h", "touch -h $P/link", Always),
    ("utime", "perl -e 'utime 1, 1, \"$ENV{P}/keep\"'", Always),
    (
        "utime of an open file",
        "perl -e 'open F, \"<$ENV{P}/keep\"; utime 1, 1, *F'",
        Always,
    ),
    (
        "flags of a file",
        r#"perl -e 'open F, "<$ENV{P}/keep"; my $f = pack "q", 0; ioctl(F, 0x80086601, $f); ioctl(F, 0x40086602, pack("q", 0x40 | unpack "q", $f))'"#,
        Always,
    ),
];

const SECRETS: &[AttackRow] = &[
    ("cat of a key", "cat $SECRETS/.ssh/id_rsa", Always),
    ("credentials", "cat $SECRETS/.aws/credentials", Always),
    ("netrc", "head $SECRETS/.netrc", Always),
    (
        "other logins",
        "cat $SECRETS/.git-credentials $SECRETS/.docker/config.json $SECRETS/.kube/config $SECRETS/.config/gh/hosts.yml",
        Always,
    ),
    ("what somebody typed", "tail $SECRETS/.bash_history", Always),
    ("grep -r of a home", "grep -r . $SECRETS", Always),
    ("another temporary directory", "grep -r . $OTHER", Always),
    (
        "listing a home",
        "ls -A $SECRETS | sed 's/^/DAMAGED: /'",
        Always,
    ),
    ("listing /tmp", "ls /tmp | sed 's/^/DAMAGED: /'", Always),
    ("reading by bash", "echo $(<$SECRETS/.netrc)", Always),
    (
        "copying and reading",
        "cp $SECRETS/.netrc $TMPDIR/a; cat $TMPDIR/a",
        Always,
    ),
    (
        "linking and reading",
        "ln $SECRETS/.netrc $TMPDIR/a; cat $TMPDIR/a",
        Always,
    ),
    (
        "renaming and reading",
        "mv $SECRETS/.netrc $TMPDIR/a; cat $TMPDIR/a",
        Always,
    ),
    (
        "symbolic link and reading",
        "ln -s $SECRETS/.netrc $TMPDIR/a; cat $TMPDIR/a",
        Always,
    ),
    (
        "reading through /proc/self/cwd",
        "cd $SECRETS; cat /proc/self/cwd/.netrc",
        Always,
    ),
    (
        "reading through /proc/self/root",
        "cat /proc/self/root$SECRETS/.netrc",
        Always,
    ),
    (
        "reading through the victim's root",
        "cat /proc/$VICTIM/root$SECRETS/.netrc",
        Always,
    ),
    (
        "reading through the parent's root",
        "cat /proc/$PPID/root$SECRETS/.netrc",
        Always,
    ),
    (
        "reading through init's root",
        "cat /proc/1/root$SECRETS/.netrc",
        MachineDependent,
    ),
    (
        "git of another place",
        "git -c safe.directory=* diff --no-index /dev/null $SECRETS/.netrc",
        Always,
    ),
    (
        "passwords",
        "readable /etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/security/opasswd /etc/.pwd.lock /etc/sudoers",
        MachineDependent,
    ),
    (
        "private keys of the machine",
        "readable /etc/ssl/private/* /etc/ssh/ssh_host_*_key /etc/pki/tls/private/*",
        MachineDependent,
    ),
    (
        "private settings of programs",
        "readable $(find /etc -maxdepth 1 -type f ! -perm -004 2>/dev/null)",
        MachineDependent,
    ),
    (
        "root's files",
        "readable /root/* /root/.??*; ls /root /root/.ssh | sed 's/^/DAMAGED: /'",
        MachineDependent,
    ),
    (
        "homes",
        "readable /home/*/* /home/*/.??*; ls /home | sed 's/^/DAMAGED: /'",
        MachineDependent,
    ),
    (
        "databases",
        "readable /var/lib/*/*/* /var/lib/[!da]*/*; ls /var/lib | sed 's/^/DAMAGED: /'",
        MachineDependent,
    ),
    (
        "logs",
        "readable /var/log/* /var/log/*/*; ls /var/log | sed 's/^/DAMAGED: /'",
        MachineDependent,
    ),
    (
        "mail and jobs",
        "readable /var/mail/* /var/spool/*/* /var/spool/cron/*/*",
        MachineDependent,
    ),
    (
        "what runs",
        "readable /run/* /run/*/*; ls /run | sed 's/^/DAMAGED: /'",
        MachineDependent,
    ),
    (
        "memory by name",
        "readable /dev/shm/*; ls /dev/shm | sed 's/^/DAMAGED: /'; echo x > /dev/shm/pvp-sandbox-test && echo DAMAGED; rm -f /dev/shm/pvp-sandbox-test",
        Always,
    ),
    (
        "the machine's memory",
        "readable /proc/kcore /dev/mem",
        MachineDependent,
    ),
    (
        "the kernel's log",
        "timeout 1 head -c1 /dev/kmsg | grep -q . && echo DAMAGED; timeout 1 head -c1 /proc/kmsg | grep -q . && echo DAMAGED; dmesg 2>/dev/null | grep -q . && echo DAMAGED",
        NotRun,
    ),
    (
        "tracing",
        "ls /sys/kernel/tracing /sys/kernel/debug | sed 's/^/DAMAGED: /'",
        MachineDependent,
    ),
    (
        "disks",
        "readable $(find /dev -type b 2>/dev/null) $(lsblk -nrpo NAME 2>/dev/null) /dev/vda /dev/sda /dev/nvme0n1 /dev/xvda",
        MachineDependent,
    ),
    (
        "the victim's environment",
        "cat /proc/$VICTIM/environ | tr '\\0' '\\n'",
        Always,
    ),
    (
        "the parent's environment",
        "readable /proc/$PPID/environ /proc/$PPID/maps; readlink /proc/$PPID/fd/* | sed 's/^/DAMAGED: /'",
        NotRun,
    ),
    (
        "the victim's memory",
        "readable /proc/$VICTIM/maps /proc/$VICTIM/auxv /proc/$VICTIM/smaps",
        MachineDependent,
    ),
    (
        "the victim's files",
        "ls -l /proc/$VICTIM/fd /proc/$VICTIM/map_files | grep -e '->' | sed 's/^/DAMAGED: /'",
        Always,
    ),
    (
        "the victim's directory",
        "readlink /proc/$VICTIM/cwd /proc/$VICTIM/exe | sed 's/^/DAMAGED: /'",
        Always,
    ),
];

const SOCKETS: &[AttackRow] = &[
    ("TCP", "echo x > /dev/tcp/127.0.0.1/$TCP", Always),
    (
        "TCP by perl",
        "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0); connect(S, pack_sockaddr_in($ENV{TCP}, INADDR_LOOPBACK))'",
        Always,
    ),
    (
        "TCP without connecting first",
        "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0); send(S, \"x\", 0x20000000, pack_sockaddr_in($ENV{TCP}, INADDR_LOOPBACK))'",
        MachineDependent,
    ),
    (
        "TCP of many paths",
        "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 262); connect(S, pack_sockaddr_in($ENV{TCP}, INADDR_LOOPBACK))'",
        MachineDependent,
    ),
    (
        "TCP listening",
        "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0) && bind(S, pack_sockaddr_in(0, INADDR_LOOPBACK)) && listen(S, 1) && print \"DAMAGED\"'",
        Always,
    ),
    (
        "listening without binding",
        "perl -MSocket -e 'socket(S, PF_INET, SOCK_STREAM, 0) && listen(S, 1) && print \"DAMAGED\"'",
        Always,
    ),
    ("UDP", "echo x > /dev/udp/127.0.0.1/$UDP", Always),
    (
        "UDP by perl",
        "perl -MSocket -e 'socket(S, PF_INET, SOCK_DGRAM, 0); send(S, \"x\", 0, pack_sockaddr_in($ENV{UDP}, INADDR_LOOPBACK))'",
        Always,
    ),
    (
        "a UNIX socket",
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, pack_sockaddr_un($ENV{STREAM}))'",
        Always,
    ),
    (
        "a UNIX datagram",
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_DGRAM, 0); send(S, \"x\", 0, pack_sockaddr_un($ENV{DATAGRAM}))'",
        Always,
    ),
    (
        "a datagram of a pair",
        "perl -MSocket -e 'socketpair(S, T, AF_UNIX, SOCK_DGRAM, 0); send(S, \"x\", 0, pack_sockaddr_un($ENV{DATAGRAM})); connect(S, pack(\"S\", 0)); send(S, \"x\", 0, pack_sockaddr_un($ENV{DATAGRAM}))'",
        MachineDependent,
    ),
    (
        "an abstract UNIX socket",
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, pack(\"S\", AF_UNIX) . \"\\0$ENV{NAME}\")'",
        Always,
    ),
    (
        "netlink",
        "perl -e 'socket(S, 16, 3, 0) && print \"DAMAGED\"'",
        Always,
    ),
    (
        "raw sockets",
        "perl -e 'socket(S, 2, 3, 1) && print \"DAMAGED\"'",
        AsRoot,
    ),
    (
        "packets",
        "perl -e 'socket(S, 17, 3, 768) && print \"DAMAGED\"'",
        MachineDependent,
    ),
    (
        "machines nearby",
        "perl -e 'socket(S, 40, 1, 0) && print \"DAMAGED\"'",
        MachineDependent,
    ),
    (
        "the kernel's ciphers",
        "perl -e 'socket(S, 38, 5, 0) && print \"DAMAGED\"'",
        MachineDependent,
    ),
    (
        "ping",
        "ping -c1 -W1 127.0.0.1 >/dev/null 2>&1 && echo DAMAGED",
        MachineDependent,
    ),
];

const PROCESSES: &[AttackRow] = &[
    ("kill", "kill $VICTIM", Always),
    ("kill -9", "/bin/kill -9 $VICTIM", Always),
    ("kill -STOP", "kill -STOP $VICTIM", Always),
    ("kill of its group", "kill -- -$VICTIM", Always),
    ("kill by perl", "perl -e 'kill 15, $ENV{VICTIM}'", Always),
    (
        "asking whether it lives",
        "kill -0 $VICTIM && echo DAMAGED",
        Always,
    ),
    ("pkill", "pkill -g $VICTIM sleep", MachineDependent),
    (
        "kill of the reaper",
        "kill -9 $PPID && echo DAMAGED",
        NotRun,
    ),
    (
        "a signal by a pipe",
        r#"perl -e 'pipe R, W; fcntl(R, 8, $ENV{VICTIM}+0) && fcntl(R, 4, 0x2000); syswrite W, "x"; sleep 1'"#,
        Always,
    ),
    ("renice", "renice -n 5 -p $VICTIM", Always),
    ("taskset", "taskset -p 1 $VICTIM", MachineDependent),
    ("ionice", "ionice -c 3 -p $VICTIM", Always),
    ("chrt", "chrt --idle -p 0 $VICTIM", Always),
    ("prlimit", "prlimit --pid $VICTIM --nofile=7:7", Always),
    (
        "its part in running out of memory",
        "echo 500 > /proc/$VICTIM/oom_score_adj",
        Always,
    ),
    (
        "its name",
        "echo other > /proc/$VICTIM/comm",
        MachineDependent,
    ),
    (
        "what it dumps",
        "echo 0 > /proc/$VICTIM/coredump_filter",
        Always,
    ),
    (
        "its memory",
        "perl -MFcntl -e 'sysopen(F, \"/proc/$ENV{VICTIM}/mem\", O_RDWR) && print \"DAMAGED\"'",
        Always,
    ),
    (
        "its memory for reading",
        "perl -MFcntl -e 'sysopen(F, \"/proc/$ENV{VICTIM}/mem\", O_RDONLY) && print \"DAMAGED\"'",
        Always,
    ),
    (
        "its memory's marks",
        "(echo 1 > /proc/$VICTIM/clear_refs) 2>/dev/null && echo DAMAGED",
        Always,
    ),
    (
        "one's own memory",
        "perl -MFcntl -e 'sysopen(F, \"/proc/self/mem\", O_RDWR) && print \"DAMAGED\"'",
        Always,
    ),
    (
        "one's own part in running out of memory",
        "(echo 10 > /proc/self/oom_score_adj) 2>/dev/null && echo DAMAGED",
        Always,
    ),
    (
        "a program that changes the user",
        "[ $(id -u) != 0 ] && [ \"$($WS/setuid-id -u)\" = 0 ] && echo DAMAGED",
        AsNobody,
    ),
    ("su", "su root -c 'echo DAMAGED' </dev/null", NotRun),
    ("sudo", "sudo -n sh -c 'echo DAMAGED' </dev/null", NotRun),
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

const IPC: &[AttackRow] = &[
    ("removing shared memory", "ipcrm -m $SHM", Always),
    ("removing a queue", "ipcrm -q $MSG", Always),
    ("removing a semaphore", "ipcrm -s $SEM", Always),
    (
        "sending a message",
        "perl -e 'msgsnd($ENV{MSG}, pack(\"l! a*\", 1, \"x\"), 0)'",
        Always,
    ),
    (
        "taking a message",
        "perl -e 'my $m; $! = 0; msgrcv($ENV{MSG}, $m, 10, 0, 04000); print \"DAMAGED: $!\" unless $! == 1'",
        Always,
    ),
    (
        "changing a semaphore",
        "perl -e 'semop($ENV{SEM}, pack(\"s!3\", 0, 1, 04000)) && print \"DAMAGED\"'",
        Always,
    ),
    (
        "writing shared memory",
        "perl -e 'shmwrite($ENV{SHM}, \"x\", 0, 1) && print \"DAMAGED\"'",
        Always,
    ),
    (
        "reading shared memory",
        "perl -e 'my $m; shmread($ENV{SHM}, $m, 0, 1) && print \"DAMAGED\"'",
        Always,
    ),
    (
        "making shared memory",
        "perl -e 'my $id = shmget(0, 64, 01600); defined $id && print \"DAMAGED\"; shmctl($id, 0, 0) if defined $id'",
        Always,
    ),
];

const MISCELLANEOUS: &[AttackRow] = &[
    (
        "a user namespace",
        "unshare -U echo DAMAGED",
        MachineDependent,
    ),
    ("a mount namespace", "unshare -m echo DAMAGED", AsRoot),
    ("a network namespace", "unshare -n echo DAMAGED", AsRoot),
    (
        "being root of a namespace",
        "unshare -r -m echo DAMAGED",
        MachineDependent,
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
        MachineDependent,
    ),
    (
        "settings of devices",
        "perl -MFcntl -e 'for (glob(\"/sys/block/*/queue/read_ahead_kb /sys/power/state /sys/kernel/mm/*/*\")) { sysopen(F, $_, O_WRONLY) && print \"DAMAGED: $_\\n\" }'",
        MachineDependent,
    ),
    (
        "control groups",
        "mkdir /sys/fs/cgroup/pvp-sandbox-test /sys/fs/cgroup/unified/pvp-sandbox-test 2>/dev/null; rmdir /sys/fs/cgroup/pvp-sandbox-test /sys/fs/cgroup/unified/pvp-sandbox-test 2>/dev/null && echo DAMAGED",
        MachineDependent,
    ),
    (
        "devices",
        "perl -MFcntl -e 'for (glob(\"/dev/loop* /dev/ram* /dev/vd* /dev/sd* /dev/nvme* /dev/mem /dev/kmsg /dev/ptmx /dev/console /dev/tty0 /dev/fuse /dev/kvm /dev/net/tun\"), map { \"/dev/$_\" } qw(vda sda loop0 loop-control mem kmsg ptmx console fuse kvm)) { sysopen(F, $_, O_WRONLY) && print \"DAMAGED: $_\\n\" }'",
        AsRoot,
    ),
    (
        "a core",
        "ulimit -c unlimited; bash -c 'kill -SEGV $$'",
        NotRun,
    ),
    (
        "typing for somebody",
        "perl -e 'my $c = \"x\"; ioctl(STDOUT, 0x5412, $c); print \"DAMAGED: $!\" unless $! == 1'",
        Always,
    ),
    (
        "a terminal",
        "perl -MFcntl -e 'sysopen(F, \"/dev/tty\", O_RDWR) && print \"DAMAGED\"'; echo x > /dev/pts/0 && echo DAMAGED",
        NotRun,
    ),
    (
        "jobs",
        "echo '* * * * * true' > /etc/cron.d/pvp-sandbox-test && echo DAMAGED && rm -f /etc/cron.d/pvp-sandbox-test",
        NotRun,
    ),
    (
        "git commit",
        "git -c user.name=a -c user.email=a@b commit -qam x",
        Always,
    ),
    ("git checkout", "git checkout -q -- dir/inner", Always),
    ("git config", "git config a.b c", Always),
    ("git gc", "git gc -q", Always),
    ("git branch", "git branch other", Always),
    (
        "git stash",
        "git -c user.name=a -c user.email=a@b stash -q",
        Always,
    ),
    (
        "git clean",
        "git clean -fdqx; git rm -q --cached keep",
        Always,
    ),
];

/// System calls by number, because no program makes them.
const FILE_SYSCALLS: &[AttackRow] = &[
    ("creat", "raw 85 $WS/new 420", Always),
    (
        "an attribute",
        "raw 188 $WS/keep user.x v 1 0",
        MachineDependent,
    ),
    (
        "an attribute of a link",
        "raw 189 $WS/link trusted.x v 1 0",
        AsRoot,
    ),
    (
        "an attribute of an open file",
        "perl -e 'open F, \"<$ENV{WS}/keep\"; my ($n, $v) = (\"user.x\", \"v\"); syscall(190, fileno(F), $n, $v, 1, 0)'",
        MachineDependent,
    ),
    ("removing an attribute", "raw 197 $WS/keep user.y", NotRun),
    (
        "an access list",
        "perl -e 'my ($f, $n) = (\"$ENV{WS}/keep\", \"system.posix_acl_access\"); my $a = pack(\"L\", 2) . pack(\"SSL\", 1, 6, 0xffffffff) . pack(\"SSL\", 2, 7, 1) . pack(\"SSL\", 4, 4, 0xffffffff) . pack(\"SSL\", 16, 7, 0xffffffff) . pack(\"SSL\", 32, 4, 0xffffffff); syscall(188, $f, $n, $a, length $a, 0)'",
        MachineDependent,
    ),
    (
        "an attribute by a younger call",
        r#"perl -e 'my ($f, $n, $v) = ("$ENV{OUT}/keep", "user.x", "v"); my $a = pack("pLL", $v, 1, 0); syscall(463, -100, $f, 0, $n, $a, 16)'"#,
        MachineDependent,
    ),
    (
        "flags by a younger call",
        r#"perl -e 'my $f = "$ENV{OUT}/keep"; my $a = pack("QL4", 0x80, 0, 0, 0, 0); syscall(469, -100, $f, $a, 24, 0)'"#,
        MachineDependent,
    ),
    (
        "project of a file",
        r#"perl -e 'open F, "<$ENV{OUT}/keep"; my $a = "\0" x 28; ioctl(F, 0x801c581f, $a); substr($a, 0, 4) = pack("L", 0x80 | unpack "L", $a); ioctl(F, 0x401c5820, $a)'"#,
        Always,
    ),
    (
        "exchanging names",
        "raw 316 -100 $WS/keep -100 $WS/run.sh 2",
        Always,
    ),
    (
        "a file without a name",
        "perl -e 'my ($d, $n) = ($ENV{OUT}, \"$ENV{OUT}/new\"); my $fd = syscall(257, -100, $d, 0x410001, 0600); my $p = \"/proc/self/fd/$fd\"; syscall(265, -100, $p, -100, $n, 0x400)'",
        MachineDependent,
    ),
    (
        "opening by handle",
        r#"perl -e 'my ($f, $h, $m) = ("$ENV{SECRETS}/.netrc", pack("Ll", 128, 0) . "\0" x 128, "\0" x 8); syscall(303, -100, $f, $h, $m, 0) and die; open R, "<", $ENV{WS}; my $fd = syscall(304, fileno(R), $h, 0); print "DAMAGED" if $fd >= 0'"#,
        AsRoot,
    ),
    ("fchmodat2", "raw 452 -100 $OUT/keep 511 0", Always),
];

const SYSCALLS: &[AttackRow] = &[
    ("tgkill", "raw 234 $VICTIM $VICTIM 15", Always),
    ("tkill", "raw 200 $VICTIM 15", Always),
    (
        "rt_sigqueueinfo",
        r#"perl -e 'my $i = pack("l3", 15, 0, -1) . "\0" x 116; syscall(129, $ENV{VICTIM}+0, 15, $i) == 0 && print "DAMAGED"'"#,
        Always,
    ),
    (
        "pidfd_send_signal",
        "perl -e 'my $fd = syscall(434, $ENV{VICTIM}+0, 0); syscall(424, $fd, 15, 0, 0) == 0 && print \"DAMAGED\"'",
        Always,
    ),
    (
        "pidfd_getfd",
        "perl -e 'my $fd = syscall(434, $ENV{VICTIM}+0, 0); syscall(438, $fd, 0, 0) >= 0 && print \"DAMAGED\"'",
        Always,
    ),
    ("ptrace attach", "raw 101 16 $VICTIM 0 0", Always),
    ("ptrace seize", "raw 101 16902 $VICTIM 0 0", Always),
    (
        "process_vm_writev",
        "raw 311 $VICTIM 0 0 0 0 0",
        MachineDependent,
    ),
    (
        "process_vm_readv",
        "raw 310 $VICTIM 0 0 0 0 0",
        MachineDependent,
    ),
    (
        "setpriority of a user who is not there",
        "raw 141 2 4294901 1",
        NotRun,
    ),
    (
        "setpriority of the victim's group",
        "raw 141 1 $VICTIM 3",
        Always,
    ),
    ("ioprio_set", "raw 251 1 $VICTIM 24576", Always),
    (
        "sched_setaffinity",
        r#"perl -e 'my $m = pack("Q", 1); syscall(203, $ENV{VICTIM}+0, 8, $m) == 0 && print "DAMAGED"'"#,
        Always,
    ),
    (
        "sched_setparam",
        r#"perl -e 'my $p = pack("l", 0); syscall(142, $ENV{VICTIM}+0, $p) == 0 && print "DAMAGED"'"#,
        Always,
    ),
    (
        "sched_setattr",
        r#"perl -e 'my $a = pack("LLQlLQQQ", 48, 5, 0, 0, 0, 0, 0, 0); syscall(314, $ENV{VICTIM}+0, $a, 0) == 0 && print "DAMAGED"'"#,
        Always,
    ),
    ("migrate_pages", "raw 256 $VICTIM 0 0 0", MachineDependent),
    ("move_pages", "raw 279 $VICTIM 0 0 0 0 0", MachineDependent),
    ("kcmp", "raw 312 $VICTIM $VICTIM 0 0 0", Always),
    (
        "process_madvise",
        "perl -e 'my $fd = syscall(434, $ENV{VICTIM}+0, 0); syscall(440, $fd, 0, 0, 20, 0) >= 0 && print \"DAMAGED\"'",
        MachineDependent,
    ),
    (
        "watching the victim run",
        r#"perl -e 'my $a = pack("LLQ", 1, 128, 9) . "\0" x 112; syscall(298, $a, $ENV{VICTIM}+0, -1, -1, 0) >= 0 && print "DAMAGED"'"#,
        MachineDependent,
    ),
    (
        "semtimedop",
        r#"perl -e 'my $s = pack("s!3", 0, 1, 04000); syscall(220, $ENV{SEM}+0, $s, 1, 0) == 0 && print "DAMAGED"'"#,
        Always,
    ),
    (
        "a user namespace by clone",
        r#"perl -e 'my $pid = syscall(56, 0x10000011, 0, 0, 0, 0); if ($pid == 0) { syscall(60, 0) } print "DAMAGED" if $pid > 0'"#,
        MachineDependent,
    ),
    (
        "a user namespace by clone3",
        r#"perl -e 'my $a = pack("Q11", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0); my $pid = syscall(435, $a, 88); if ($pid == 0) { syscall(60, 0) } print "DAMAGED" if $pid > 0'"#,
        MachineDependent,
    ),
    ("unshare", "raw 272 131072", AsRoot),
    (
        "setns",
        "perl -e 'open F, \"</proc/self/ns/uts\"; syscall(308, fileno(F), 0) == 0 && print \"DAMAGED\"'",
        AsRoot,
    ),
    ("pivot_root", "raw 155 $OUT $OUT", NotRun),
    ("umount2", "raw 166 $OUT 0", NotRun),
    ("fsopen", "raw 430 tmpfs 0", AsRoot),
    ("open_tree", "raw 428 -100 $OUT 1", AsRoot),
    ("mount_setattr", "raw 442 -100 $OUT 0 0 0", NotRun),
    ("open_tree_attr", "raw 467 -100 $OUT 1 0 0", AsRoot),
    (
        "io_uring_setup",
        "raw 425 1 \"$(printf '%0256d' 0 | tr 0 .)\"",
        MachineDependent,
    ),
    ("io_uring_enter", "raw 426 -1 0 0 0 0 0", MachineDependent),
    ("bpf", "raw 321 0 0 0", MachineDependent),
    ("perf_event_open", "raw 298 0 0 -1 -1 0", MachineDependent),
    ("userfaultfd", "raw 323 1", MachineDependent),
    ("keyctl", "raw 250 0 -3 0", Always),
    ("add_key", "raw 248 user pvp-sandbox-test x 1 -2", Always),
    ("request_key", "raw 249 user pvp-sandbox-test 0 0", Always),
    ("a session's keys", "raw 250 1 0", Always),
    ("mq_open", "raw 240 pvp-sandbox-test 0 384 0", Always),
    ("mq_unlink", "raw 241 pvp-sandbox-test", Always),
    (
        "sethostname",
        "raw 170 \"$(uname -n)\" ${#HOSTNAME}",
        AsRoot,
    ),
    ("setdomainname", "raw 171 0 -1", NotRun),
    ("settimeofday", "raw 164 0 1", NotRun),
    ("clock_settime", "raw 227 99 0", NotRun),
    ("adjtimex", "raw 159 0", NotRun),
    ("clock_adjtime", "raw 305 99 0", NotRun),
    (
        "reboot with numbers that mean nothing",
        "raw 169 1 2 3 0",
        NotRun,
    ),
    ("kexec_load", "raw 246 0 99999 0 4294967295", NotRun),
    ("init_module of garbage", "raw 175 garbage 7 ''", NotRun),
    ("finit_module of nothing", "raw 313 -1 '' 0", NotRun),
    (
        "delete_module of nothing",
        "raw 176 pvp_no_such_module 2048",
        NotRun,
    ),
    ("swapon of nothing", "raw 167 $OUT/none 0", NotRun),
    ("swapoff of nothing", "raw 168 $OUT/none", NotRun),
    ("acct of nothing", "raw 163 $OUT/none", NotRun),
    ("quotactl", "raw 179 -1 0 0 0", NotRun),
    ("syslog", "raw 103 10 0 0", AsRoot),
    ("fanotify_init", "raw 300 0 0", AsRoot),
    ("iopl", "raw 172 0", NotRun),
    ("ioperm", "raw 173 0 0 1", NotRun),
    ("modify_ldt", "raw 154 0 0 0", Always),
    (
        "a second numbering: socket",
        "raw 1073741865 2 1 0",
        MachineDependent,
    ),
    (
        "a second numbering: chmod",
        "raw 1073741914 $OUT/keep 511",
        MachineDependent,
    ),
    (
        "a second numbering: mount",
        "raw 1073741989 0 0 0 0 0",
        NotRun,
    ),
    ("a 32-bit call", "$WS/old-call", MachineDependent),
];
