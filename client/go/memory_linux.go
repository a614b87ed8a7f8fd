package gradwire

import (
	"syscall"
	"unsafe"
)

// preferHugePages asks the system for huge pages in memory that is about to be written, if it is large. The first write
// to each small page of fresh memory is a page fault. Together these take longer than the copy of the values.
func preferHugePages(data []byte) {
	const huge = 2 << 20
	address := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	begin := int((huge - address%huge) % huge)
	if size := (len(data) - begin) / huge * huge; size > 0 {
		_ = syscall.Madvise(data[begin:begin+size], syscall.MADV_HUGEPAGE) // a system without them takes small ones
	}
}
