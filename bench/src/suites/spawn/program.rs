//! A minimal program that exits immediately.
//!
//! An ordinary program takes several times as long to load as its parent takes to spawn it, which
//! would hide the difference between contestants. So this module writes a minimal ELF file.

use std::io;
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use crate::temporary::Temporary;

/// The program of the children.
#[derive(Debug)]
pub(super) enum Program {
    /// Written for this run.
    #[cfg(target_os = "linux")]
    Made(Temporary),
    /// An existing program of the system.
    Found(PathBuf),
}

impl Program {
    /// The smallest program available.
    pub(super) fn new() -> Program {
        #[cfg(target_os = "linux")]
        if let Some(program) = smallest::make() {
            return Program::Made(program);
        }
        Program::Found(if cfg!(windows) { "hostname.exe".into() } else { "/bin/true".into() })
    }

    pub(super) fn path(&self) -> io::Result<&Path> {
        match self {
            #[cfg(target_os = "linux")]
            Program::Made(file) => file.path(),
            Program::Found(path) => Ok(path),
        }
    }
}

#[cfg(target_os = "linux")]
mod smallest {
    use std::fs::{self, Permissions};
    use std::io::{self, ErrorKind};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::Command;
    use std::thread;
    use std::time::Duration;

    use crate::temporary::Temporary;

    /// The code of `exit(0)`, and the ELF machine number.
    #[cfg(target_arch = "x86_64")]
    const CODE: Option<(&[u8], u16)> = Some((
        &[
            0xb8, 0x3c, 0, 0, 0, // mov eax, 60
            0x31, 0xff, // xor edi, edi
            0x0f, 0x05, // syscall
        ],
        62,
    ));
    #[cfg(target_arch = "aarch64")]
    const CODE: Option<(&[u8], u16)> = Some((
        &[
            0x00, 0x00, 0x80, 0xd2, // mov x0, #0
            0xa8, 0x0b, 0x80, 0xd2, // mov x8, #93
            0x01, 0x00, 0x00, 0xd4, // svc #0
        ],
        183,
    ));
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    const CODE: Option<(&[u8], u16)> = None;

    const HEADER: u64 = 64;
    const SEGMENT: u64 = 56;
    /// The load address.
    const ADDRESS: u64 = 0x40_0000;

    /// `None` on an unsupported architecture, or if the temporary folder is mounted `noexec`.
    pub(super) fn make() -> Option<Temporary> {
        let (code, machine) = CODE?;
        let file = Temporary::new("program", &executable(code, machine));
        fs::set_permissions(file.path().ok()?, Permissions::from_mode(0o700)).ok()?;
        works(file.path().ok()?).then_some(file)
    }

    /// An ELF file: the header, one segment that covers the whole file, and the code.
    fn executable(code: &[u8], machine: u16) -> Vec<u8> {
        let start = HEADER + SEGMENT;
        let len = start + code.len() as u64;
        let mut file = b"\x7fELF".to_vec();
        file.extend([2, 1, 1, 0]); // 64 bits, little-endian.
        file.extend([0; 8]);
        file.extend(2_u16.to_le_bytes()); // ET_EXEC.
        file.extend(machine.to_le_bytes());
        file.extend(1_u32.to_le_bytes());
        // The entry point, the offset of the program headers, and no section headers.
        file.extend([ADDRESS + start, HEADER, 0].map(u64::to_le_bytes).concat());
        file.extend(0_u32.to_le_bytes());
        file.extend([HEADER as u16, SEGMENT as u16, 1, 0, 0, 0].map(u16::to_le_bytes).concat());
        file.extend([1_u32, 5].map(u32::to_le_bytes).concat()); // PT_LOAD, readable and executable.
        let alignment = 0x1_0000;
        let segment = [0, ADDRESS, ADDRESS, len, len, alignment];
        file.extend(segment.map(u64::to_le_bytes).concat());
        file.extend(code);
        file
    }

    /// Retries while the file is busy: a child forked by another thread may briefly hold a
    /// descriptor that is open for writing.
    fn works(program: &Path) -> bool {
        let is_busy = |error: &io::Error| error.kind() == ErrorKind::ExecutableFileBusy;
        for _ in 0..1_000 {
            match Command::new(program).status() {
                Err(error) if is_busy(&error) => thread::sleep(Duration::from_millis(1)),
                status => return status.is_ok_and(|status| status.success()),
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn it_ends_well_and_leaves_nothing() {
        let program = Program::new();
        let path = program.path().unwrap().to_owned();
        assert!(Command::new(&path).status().unwrap().success());
        drop(program);
        assert_eq!(path.exists(), path.starts_with("/bin"), "{}", path.display());
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn the_smallest_one_is_made_here() {
        assert!(matches!(Program::new(), Program::Made(_)));
    }
}
