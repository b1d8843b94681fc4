//! Who may use a pipe.

use std::io;
use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::ptr;

use windows_sys::Win32::Foundation::{GENERIC_READ, GENERIC_WRITE, LocalFree};
use windows_sys::Win32::Security::Authorization::{
    EXPLICIT_ACCESS_W, GRANT_ACCESS, GetSecurityInfo, NO_MULTIPLE_TRUSTEE, SE_KERNEL_OBJECT,
    SetEntriesInAclW, SetSecurityInfo, TRUSTEE_IS_SID, TRUSTEE_IS_WELL_KNOWN_GROUP, TRUSTEE_W,
};
use windows_sys::Win32::Security::{
    ACL, CreateWellKnownSid, DACL_SECURITY_INFORMATION, NO_INHERITANCE, SECURITY_MAX_SID_SIZE,
    WinWorldSid,
};
use windows_sys::Win32::Storage::FileSystem::{FILE_READ_ATTRIBUTES, FILE_WRITE_ATTRIBUTES};

/// Memory of the system's that is freed with this.
struct Local(*mut std::ffi::c_void);

impl Drop for Local {
    fn drop(&mut self) {
        // SAFETY: it came from `LocalAlloc`, or is null, which is ignored; nobody uses it now.
        unsafe { LocalFree(self.0) };
    }
}

/// Lets everybody read or write, besides those who may already. The handle was opened with
/// `WRITE_DAC`.
pub(super) fn widen(pipe: &OwnedHandle, read: bool, write: bool) -> io::Result<()> {
    let (mut list, _descriptor) = list_of(pipe)?;
    if list.is_null() {
        return Ok(()); // Without a list, everybody may do everything.
    }
    // Who opens a pipe also asks for the attributes of the direction that it does not have.
    let mut rights = if read { GENERIC_READ | FILE_WRITE_ATTRIBUTES } else { 0 };
    rights |= if write { GENERIC_WRITE | FILE_READ_ATTRIBUTES } else { 0 };
    let mut everybody = everybody()?;
    let entry = EXPLICIT_ACCESS_W {
        grfAccessPermissions: rights,
        grfAccessMode: GRANT_ACCESS,
        grfInheritance: NO_INHERITANCE,
        Trustee: TRUSTEE_W {
            pMultipleTrustee: ptr::null_mut(),
            MultipleTrusteeOperation: NO_MULTIPLE_TRUSTEE,
            TrusteeForm: TRUSTEE_IS_SID,
            TrusteeType: TRUSTEE_IS_WELL_KNOWN_GROUP,
            ptstrName: everybody.as_mut_ptr().cast(),
        },
    };
    let mut wider = ptr::null_mut();
    // SAFETY: the entry names a SID that lives across the call, as does the list.
    checked(unsafe { SetEntriesInAclW(1, &entry, list, &mut wider) })?;
    let _wider = Local(wider.cast());
    list = wider;
    let (handle, none) = (pipe.as_raw_handle(), ptr::null_mut());
    let what = DACL_SECURITY_INFORMATION;
    // SAFETY: the list was just made, and lives across the call.
    checked(unsafe {
        SetSecurityInfo(handle, SE_KERNEL_OBJECT, what, none, none, list, none.cast())
    })
}

/// The list of who may do what, null if there is none, and the memory that it is in.
fn list_of(pipe: &OwnedHandle) -> io::Result<(*mut ACL, Local)> {
    let (mut list, mut descriptor) = (ptr::null_mut(), ptr::null_mut());
    let (handle, what) = (pipe.as_raw_handle(), DACL_SECURITY_INFORMATION);
    let (no, none, nothing) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: writes two addresses, of which the first lies in the memory of the second.
    checked(unsafe {
        GetSecurityInfo(
            handle,
            SE_KERNEL_OBJECT,
            what,
            no,
            none,
            &mut list,
            nothing,
            &mut descriptor,
        )
    })?;
    Ok((list, Local(descriptor)))
}

/// The name of everybody.
fn everybody() -> io::Result<[u32; SECURITY_MAX_SID_SIZE as usize / 4]> {
    let (mut sid, mut size) = ([0; SECURITY_MAX_SID_SIZE as usize / 4], SECURITY_MAX_SID_SIZE);
    let (none, place) = (ptr::null_mut(), sid.as_mut_ptr().cast());
    // SAFETY: there is room for any.
    match unsafe { CreateWellKnownSid(WinWorldSid, none, place, &mut size) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(sid),
    }
}

fn checked(code: u32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code as i32)) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use windows_sys::Win32::Security::{ACCESS_ALLOWED_ACE, EqualSid, GetAce, InitializeAcl};

    use super::super::calls::{self, Access, Instances};
    use super::*;

    /// What everybody may do by the list.
    fn granted(pipe: &OwnedHandle) -> Vec<u32> {
        let (list, _descriptor) = list_of(pipe).expect("a list");
        let mut everybody = everybody().expect("a name");
        // SAFETY: the list is there.
        let count = unsafe { (*list).AceCount };
        let mut rights = Vec::new();
        for index in 0..count {
            let mut entry = ptr::null_mut();
            // SAFETY: there are as many.
            assert_ne!(unsafe { GetAce(list, index.into(), &mut entry) }, 0);
            let entry: *mut ACCESS_ALLOWED_ACE = entry.cast();
            // SAFETY: all entries of this list allow something.
            let sid = unsafe { (&raw mut (*entry).SidStart).cast() };
            // SAFETY: both are names.
            if unsafe { EqualSid(sid, everybody.as_mut_ptr().cast()) } != 0 {
                // SAFETY: as above.
                rights.push(unsafe { (*entry).Mask });
            }
        }
        rights
    }

    #[test]
    fn what_is_granted_adds_up_and_is_of_all_instances() {
        let name = format!(r"\\.\pipe\uv-core-access-{}", std::process::id());
        let make = |which| calls::create(Path::new(&name), Access::Both, which).expect("a pipe");
        let first = make(Instances::First);
        let mut nobody = [0_u32; 16];
        let list: *mut ACL = nobody.as_mut_ptr().cast();
        // SAFETY: there is room for a list without entries.
        assert_ne!(unsafe { InitializeAcl(list, size_of_val(&nobody) as u32, 2) }, 0);
        let (handle, none) = (first.as_raw_handle(), ptr::null_mut());
        let what = DACL_SECURITY_INFORMATION;
        // SAFETY: the list lives across the call.
        let set = unsafe {
            SetSecurityInfo(handle, SE_KERNEL_OBJECT, what, none, none, list, none.cast())
        };
        checked(set).expect("nobody may do anything");
        assert_eq!(granted(&first), []);
        widen(&first, true, false).expect("to read");
        let [reads] = granted(&first)[..] else { panic!("one entry") };
        assert!(reads != 0 && reads & GENERIC_WRITE == 0, "{reads:x}");
        widen(&first, false, true).expect("to write");
        let both = granted(&first).into_iter().fold(0, |all, rights| all | rights);
        assert_eq!(both & reads, reads, "what could be done still can");
        assert_ne!(both, reads);
    }
}
