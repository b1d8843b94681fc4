//! Access rights of named pipes.

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

/// Memory allocated by the system, freed on drop.
struct Local(*mut std::ffi::c_void);

impl Drop for Local {
    fn drop(&mut self) {
        // SAFETY: allocated by `LocalAlloc`, or null, which is ignored; the owner no longer uses
        // it.
        unsafe { LocalFree(self.0) };
    }
}

/// Grants the group Everyone read or write access, in addition to existing rights. The handle
/// must have `WRITE_DAC`.
pub(super) fn widen(pipe: &OwnedHandle, read: bool, write: bool) -> io::Result<()> {
    let (mut list, _descriptor) = list_of(pipe)?;
    if list.is_null() {
        return Ok(()); // Without a DACL, every user has full access.
    }
    // An open for one direction also requests the attributes of the other.
    let mut rights = if read { GENERIC_READ | FILE_WRITE_ATTRIBUTES } else { 0 };
    rights |= if write { GENERIC_WRITE | FILE_READ_ATTRIBUTES } else { 0 };
    let mut everyone = everyone()?;
    let entry = EXPLICIT_ACCESS_W {
        grfAccessPermissions: rights,
        grfAccessMode: GRANT_ACCESS,
        grfInheritance: NO_INHERITANCE,
        Trustee: TRUSTEE_W {
            pMultipleTrustee: ptr::null_mut(),
            MultipleTrusteeOperation: NO_MULTIPLE_TRUSTEE,
            TrusteeForm: TRUSTEE_IS_SID,
            TrusteeType: TRUSTEE_IS_WELL_KNOWN_GROUP,
            ptstrName: everyone.as_mut_ptr().cast(),
        },
    };
    let mut wider = ptr::null_mut();
    // SAFETY: the SID of the entry and the list live across the call.
    checked(unsafe { SetEntriesInAclW(1, &entry, list, &mut wider) })?;
    let _wider = Local(wider.cast());
    list = wider;
    let (handle, none) = (pipe.as_raw_handle(), ptr::null_mut());
    let what = DACL_SECURITY_INFORMATION;
    // SAFETY: `_wider` keeps the list across the call.
    checked(unsafe {
        SetSecurityInfo(handle, SE_KERNEL_OBJECT, what, none, none, list, none.cast())
    })
}

/// The DACL of a pipe, null if it has none, and the memory that contains it.
fn list_of(pipe: &OwnedHandle) -> io::Result<(*mut ACL, Local)> {
    let (mut list, mut descriptor) = (ptr::null_mut(), ptr::null_mut());
    let (handle, what) = (pipe.as_raw_handle(), DACL_SECURITY_INFORMATION);
    let (no, none, nothing) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: the call writes two local pointers; the list lies in the memory of the descriptor.
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

/// The SID of the group Everyone.
fn everyone() -> io::Result<[u32; SECURITY_MAX_SID_SIZE as usize / 4]> {
    let (mut sid, mut size) = ([0; SECURITY_MAX_SID_SIZE as usize / 4], SECURITY_MAX_SID_SIZE);
    let (none, place) = (ptr::null_mut(), sid.as_mut_ptr().cast());
    // SAFETY: the buffer has the maximum size of a SID.
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

    /// The access masks that the DACL grants to Everyone.
    fn granted(pipe: &OwnedHandle) -> Vec<u32> {
        let (list, _descriptor) = list_of(pipe).expect("read the DACL");
        let mut everyone = everyone().expect("the SID of Everyone");
        // SAFETY: `_descriptor` keeps the list, which is not null in this test.
        let count = unsafe { (*list).AceCount };
        let mut rights = Vec::new();
        for index in 0..count {
            let mut entry = ptr::null_mut();
            // SAFETY: `index` is below the number of entries.
            assert_ne!(unsafe { GetAce(list, index.into(), &mut entry) }, 0);
            let entry: *mut ACCESS_ALLOWED_ACE = entry.cast();
            // SAFETY: every entry of this list is an `ACCESS_ALLOWED_ACE`.
            let sid = unsafe { (&raw mut (*entry).SidStart).cast() };
            // SAFETY: both point to valid SIDs.
            if unsafe { EqualSid(sid, everyone.as_mut_ptr().cast()) } != 0 {
                // SAFETY: every entry of this list is an `ACCESS_ALLOWED_ACE`.
                rights.push(unsafe { (*entry).Mask });
            }
        }
        rights
    }

    #[test]
    fn granted_rights_accumulate() {
        let name = format!(r"\\.\pipe\uv-core-access-{}", std::process::id());
        let make = |which| calls::create(Path::new(&name), Access::Both, which).expect("a pipe");
        let first = make(Instances::First);
        let mut empty = [0_u32; 16];
        let list: *mut ACL = empty.as_mut_ptr().cast();
        // SAFETY: the buffer has space for a list without entries.
        assert_ne!(unsafe { InitializeAcl(list, size_of_val(&empty) as u32, 2) }, 0);
        let (handle, none) = (first.as_raw_handle(), ptr::null_mut());
        let what = DACL_SECURITY_INFORMATION;
        // SAFETY: the list lives across the call.
        let set = unsafe {
            SetSecurityInfo(handle, SE_KERNEL_OBJECT, what, none, none, list, none.cast())
        };
        checked(set).expect("set an empty DACL");
        assert_eq!(granted(&first), []);
        widen(&first, true, false).expect("grant read access");
        let [reads] = granted(&first)[..] else { panic!("one entry") };
        assert!(reads != 0 && reads & GENERIC_WRITE == 0, "{reads:x}");
        widen(&first, false, true).expect("grant write access");
        let both = granted(&first).into_iter().fold(0, |all, rights| all | rights);
        assert_eq!(both & reads, reads, "earlier rights are kept");
        assert_ne!(both, reads);
    }
}
