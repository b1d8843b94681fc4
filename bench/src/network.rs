//! The network between clients and servers: the loopback interface, or two network namespaces
//! joined by a pair of virtual interfaces, with a delay.
//!
//! The namespaces have no names. They belong to this process and to a child that only sleeps, and
//! disappear with them. Nothing outside of them can be reached: they have no other interface.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// The address of the clients' end of the pair.
#[cfg(target_os = "linux")]
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The address of the servers' end of the pair.
#[cfg(target_os = "linux")]
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// A server finds the address to listen at in this variable.
const VARIABLE: &str = "BENCH_SERVER_ADDRESS";

/// The network between the clients and the servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// The loopback interface.
    #[default]
    Loopback,
    /// Two namespaces joined by veth, with this delay in each direction.
    Namespaces {
        /// The delay of each direction in microseconds.
        delay_us: u64,
    },
    /// Another host.
    Host(String),
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Network::Loopback => f.write_str("loopback"),
            Network::Namespaces { delay_us: 0 } => f.write_str("two namespaces, veth"),
            Network::Namespaces { delay_us } => {
                write!(f, "two namespaces, veth, {delay_us} µs each way")
            }
            Network::Host(host) => write!(f, "to {host}"),
        }
    }
}

/// The process whose namespace the servers use, once there are namespaces.
static HOLDER: OnceLock<u32> = OnceLock::new();

/// The address that a server of this process listens at.
pub(crate) fn server_address() -> IpAddr {
    let given = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
    given.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Makes a server start in the other namespace, if there are namespaces.
pub(crate) fn enter_server_side(command: &mut Command) {
    #[cfg(target_os = "linux")]
    if let Some(holder) = HOLDER.get() {
        linux::enter(command, *holder);
        command.env(VARIABLE, SERVER.to_string());
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (command, HOLDER.get());
}

/// Joins two namespaces, if a network other than the loopback interface is asked for. The result
/// keeps them. A kernel that cannot delay packets is no error: the network is then without a delay,
/// and the text says why.
///
/// # Errors
///
/// `PermissionDenied` without root's rights, and an error that names the command that failed.
#[cfg(target_os = "linux")]
pub(crate) fn prepare(
    network: &mut Network,
) -> std::io::Result<(Option<linux::Namespaces>, Option<String>)> {
    let Network::Namespaces { delay_us } = network else { return Ok((None, None)) };
    let (namespaces, refusal) = linux::join(*delay_us)?;
    let note = refusal.map(|error| {
        let asked = std::mem::take(delay_us);
        format!(
            "No delay between the namespaces, though {asked} µs were asked for: netem refuses \
             ({error}). It needs a kernel with CONFIG_NET_SCH_NETEM, and maybe 'modprobe \
             sch_netem'."
        )
    });
    Ok((Some(namespaces), note))
}

/// Refuses a network other than the loopback interface.
///
/// # Errors
///
/// `Unsupported` for namespaces.
#[cfg(not(target_os = "linux"))]
pub(crate) fn prepare(network: &mut Network) -> std::io::Result<(Option<()>, Option<String>)> {
    match network {
        Network::Namespaces { .. } => {
            let why = "network namespaces need Linux";
            Err(std::io::Error::new(std::io::ErrorKind::Unsupported, why))
        }
        Network::Loopback | Network::Host(_) => Ok((None, None)),
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::{CLIENT, HOLDER, SERVER};

    /// Moves this process, which must have one thread, into a new namespace, and joins it with
    /// another for the servers. Also returns why there is no delay, if it cannot be had.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` without root's rights, and an error that names the command that failed.
    pub(super) fn join(delay_us: u64) -> io::Result<(Namespaces, Option<io::Error>)> {
        new_namespace().map_err(|error| {
            let why = format!("network namespaces need root: {error}");
            io::Error::new(error.kind(), why)
        })?;
        let mut sleep = Command::new("sleep");
        sleep.arg("infinity").stdin(Stdio::null());
        let alone = || {
            // SAFETY: no memory is passed. The child ends with this process, however that ends.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            new_namespace()
        };
        // SAFETY: the closure makes two system calls, which are async-signal-safe.
        let holder = unsafe { sleep.pre_exec(alone) }.spawn()?;
        let namespaces = Namespaces { holder };
        let pid = namespaces.holder.id().to_string();
        let here = |words: &str| run(Command::new("ip").args(words.split(' ')));
        here(&format!("link add bench0 type veth peer name bench1 netns {pid}"))?;
        here(&format!("addr add {CLIENT}/24 dev bench0"))?;
        here("link set lo up")?;
        here("link set bench0 up")?;
        let there = |words: &str| {
            let mut ip = Command::new("ip");
            ip.args(words.split(' '));
            enter(&mut ip, namespaces.holder.id());
            run(&mut ip)
        };
        there(&format!("addr add {SERVER}/24 dev bench1"))?;
        there("link set lo up")?;
        there("link set bench1 up")?;
        let refusal = if delay_us > 0 { delay(delay_us, &namespaces).err() } else { None };
        HOLDER.get_or_init(|| namespaces.holder.id());
        Ok((namespaces, refusal))
    }

    /// Delays packets at both ends.
    fn delay(delay_us: u64, namespaces: &Namespaces) -> io::Result<()> {
        // Long enough for everything that is in flight.
        let rule =
            |end: &str| format!("qdisc add dev {end} root netem delay {delay_us}us limit 100000");
        let mut there = Command::new("tc");
        there.args(rule("bench1").split(' '));
        enter(&mut there, namespaces.holder.id());
        run(&mut there)?;
        // Only with both: one end that delays would be another network than either.
        run(Command::new("tc").args(rule("bench0").split(' ')))
    }

    /// The namespaces; the servers' one disappears on drop, the clients' one with this process.
    #[derive(Debug)]
    pub(crate) struct Namespaces {
        holder: Child,
    }

    impl Drop for Namespaces {
        fn drop(&mut self) {
            // It may have been killed already.
            let _ = self.holder.kill();
            let _ = self.holder.wait();
        }
    }

    fn new_namespace() -> io::Result<()> {
        // SAFETY: no memory is passed.
        match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Makes a command run in the namespace of a process.
    pub(super) fn enter(command: &mut Command, process: u32) {
        let namespace = File::open(format!("/proc/{process}/ns/net"));
        let change = move || {
            let namespace = namespace.as_ref().map_err(|error| io::Error::from(error.kind()))?;
            // SAFETY: no memory is passed.
            match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure makes one system call, and allocates only to report an error.
        unsafe { command.pre_exec(change) };
    }

    fn run(command: &mut Command) -> io::Result<()> {
        let name = format!("{command:?}");
        let named = |why: String| io::Error::other(format!("{name}: {why}"));
        match command.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                let words = String::from_utf8_lossy(&output.stderr);
                Err(named(words.trim().to_string()))
            }
            Err(error) => Err(named(format!("{error} (Debian: iproute2)"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_network_has_a_name_for_the_charts() {
        assert_eq!(Network::default().to_string(), "loopback");
        let joined = Network::Namespaces { delay_us: 500 };
        assert_eq!(joined.to_string(), "two namespaces, veth, 500 µs each way");
        assert_eq!(Network::Host("10.0.0.1:7000".into()).to_string(), "to 10.0.0.1:7000");
    }
}
