package files

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func isBlockDevice(mode fs.FileMode) bool {
	return mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0
}

// HoldDevice implements FS. A kernel before Linux 5.15 does not number the disks
// in the order of their appearance; there id is the number of the device alone.
func (OS) HoldDevice(path string) (string, io.Closer, error) {
	refused := &fs.PathError{Op: "open", Path: path, Err: ErrNotBlockDevice}
	// Opening other devices may have side effects: a tape rewinds.
	if info, err := os.Stat(path); err != nil {
		return "", nil, err
	} else if !isBlockDevice(info.Mode()) {
		return "", nil, refused
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return "", nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		_ = f.Close()
		return "", nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		_ = f.Close()
		return "", nil, refused
	}
	id := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	var sequence uint64
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), blkGetDiskSeq, uintptr(unsafe.Pointer(&sequence))); errno == 0 {
		id += fmt.Sprintf(" disk %d", sequence)
	}
	return id, f, nil
}

// blkGetDiskSeq is BLKGETDISKSEQ of linux/fs.h, which returns a number that no
// other disk has had since the machine was started.
const blkGetDiskSeq = 0x80081280
