//! Memory for large values.

/// Asks the system for huge pages in memory that is about to be written, if it is large. The first write to each small
/// page of fresh memory is a page fault. Together these take longer than the copy of the values.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(crate) fn prefer_huge_pages<T>(memory: &mut [T]) {
    const HUGE: usize = 2 << 20;
    let begin = memory.as_mut_ptr();
    let skipped = (HUGE - begin.addr() % HUGE) % HUGE;
    let size = size_of_val(memory).saturating_sub(skipped) / HUGE * HUGE;
    if size > 0 {
        // SAFETY: The range is a part of `memory`. The hint changes none of its bytes, and a system without huge pages
        // may refuse it.
        unsafe { libc::madvise(begin.byte_add(skipped).cast(), size, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn prefer_huge_pages<T>(_memory: &mut [T]) {}
