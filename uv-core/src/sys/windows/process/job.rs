//! A job object that ends children together with this process.

use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr;
use std::sync::OnceLock;

use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_BREAKAWAY_OK,
    JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectExtendedLimitInformation, SetInformationJobObject,
};

/// Adds a child to the job, if possible. It fails for a process that is itself in a job which
/// does not permit nested jobs (before Windows 8) or breakaway: its children survive it.
pub(super) fn add(child: &OwnedHandle) {
    static JOB: OnceLock<Option<OwnedHandle>> = OnceLock::new();
    if let Some(job) = JOB.get_or_init(make) {
        // SAFETY: `job` and `child` keep both handles open.
        unsafe { AssignProcessToJobObject(job.as_raw_handle(), child.as_raw_handle()) };
    }
}

fn make() -> Option<OwnedHandle> {
    // SAFETY: no memory is passed.
    let job = unsafe { CreateJobObjectW(ptr::null(), ptr::null()) };
    if job.is_null() {
        return None;
    }
    // SAFETY: the call created the handle, and no other code owns it.
    let job = unsafe { OwnedHandle::from_raw_handle(job) };
    let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    // Grandchildren are not in the job: their parent decides whether they survive it.
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_BREAKAWAY_OK
        | JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK
        | JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION
        | JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
    // SAFETY: pointer and size describe a local structure.
    let set = unsafe {
        SetInformationJobObject(
            job.as_raw_handle(),
            JobObjectExtendedLimitInformation,
            (&raw const limits).cast(),
            size_of_val(&limits) as u32,
        )
    };
    (set != 0).then_some(job)
}
