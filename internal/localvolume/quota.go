package localvolume

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fileSystem is what the file system of the volumes knows of their sizes, all of
// them in bytes. A limit of 0 is none.
type fileSystem interface {
	// free returns the size of the file system of a directory, and what is free in it.
	free(dir string) (size, free int64, err error)
	// enforces reports whether directories below dir can have limits.
	enforces(dir string) bool
	// limit limits what is in a directory. A directory that never had a limit
	// must be empty: what is in it does not count. Calls for directories that
	// never had one must not be concurrent.
	limit(dir string, bytes int64) error
	// limited returns the limit of a directory and the size of what counts.
	limited(dir string) (limit, used int64, err error)
}

// projectQuotas are the file systems of Linux. ext4 and xfs that are mounted with
// prjquota limit directories: each belongs to a project, which is a number, and
// so does what is made in it. The quotas of a file system are by project.
//
// ext4 does not hold processes with CAP_SYS_RESOURCE to limits, as those of
// privileged containers.
type projectQuotas struct{}

// free implements fileSystem.
func (projectQuotas) free(dir string) (size, free int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(s.Blocks) * s.Bsize, int64(s.Bavail) * s.Bsize, nil
}

// enforces implements fileSystem. Before Linux 5.14, no file system does. None does
// for a process that may not set limits, such as one in a user namespace.
func (projectQuotas) enforces(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	state := quotaState{version: quotaStateVersion}
	if err := quota(f, getQuotaState, 0, unsafe.Pointer(&state)); err != nil || state.flags&projectsEnforced == 0 {
		return false
	}
	_, err = usageOf(f, 0) // it needs the rights that setting a limit needs
	return err == nil
}

// limit implements fileSystem.
func (projectQuotas) limit(dir string, bytes int64) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var a attributes
	own, err := ownProject(f, &a)
	switch {
	case err != nil:
		return err
	case own:
		return setLimit(f, a.project, bytes)
	case bytes == 0:
		return nil
	}
	project, err := unusedProject(f)
	if err != nil {
		return err
	}
	if err := setLimit(f, project, bytes); err != nil {
		return err
	}
	a.project, a.flags = project, a.flags|inheritsProject
	return control(f, setAttributes, &a)
}

// limited implements fileSystem.
func (projectQuotas) limited(dir string) (limit, used int64, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }()
	var a attributes
	if own, err := ownProject(f, &a); !own {
		return 0, 0, err
	}
	u, err := usageOf(f, a.project)
	return int64(u.blockLimit) * quotaBlock, int64(u.bytes), err
}

// ownProject reads the attributes of a directory and reports whether it has a project
// of its own. The owner of a directory, which root in a container is, can give it another
// one: that of another volume, whose limit would be changed or removed then.
func ownProject(f *os.File, a *attributes) (bool, error) {
	if err := control(f, getAttributes, a); err != nil {
		return false, err
	}
	return isProjectOf(f.Name(), a.project), nil
}

// The numbers of projects: half of them are left to others, such as
// administrators and container runtimes, who begin with the small ones.
const (
	firstProject = 1 << 30
	projects     = 1 << 30
	// ofDirectory is how many of them a directory can get: the first unused one.
	ofDirectory = 1000
)

// offsetOf returns which of the projects is the first one that a directory can get.
func offsetOf(dir string) uint32 {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(dir)) // it never fails
	return hash.Sum32() % projects
}

// isProjectOf reports whether a project is one that a directory can get.
func isProjectOf(dir string, project uint32) bool {
	return project >= firstProject && project-firstProject < projects && (project-firstProject-offsetOf(dir))%projects < ofDirectory
}

// unusedProject returns a project without files. It may have a limit, of a volume that
// was removed with its cluster.
func unusedProject(f *os.File) (uint32, error) {
	for i := range uint32(ofDirectory) {
		project := firstProject + (offsetOf(f.Name())+i)%projects
		u, err := usageOf(f, project)
		if err != nil {
			return 0, err
		}
		if u.bytes == 0 && u.inodes == 0 {
			return project, nil
		}
	}
	return 0, fmt.Errorf("the file system of %s has no unused project", f.Name())
}

func setLimit(f *os.File, project uint32, bytes int64) error {
	u := usage{blockLimit: (uint64(bytes) + quotaBlock - 1) / quotaBlock, valid: blockLimitsValid}
	return quota(f, setQuota, project, unsafe.Pointer(&u))
}

// usageOf returns the quota of a project.
func usageOf(f *os.File, project uint32) (usage, error) {
	var u usage
	err := quota(f, getQuota, project, unsafe.Pointer(&u))
	if errors.Is(err, unix.ENOENT) { // xfs, of a project that was never used
		return usage{}, nil
	}
	return u, err
}

// What follows is of linux/fs.h, linux/quota.h and linux/dqblk_xfs.h.

// attributes is struct fsxattr.
type attributes struct {
	flags, extentSize, extents, project, copiedExtentSize uint32
	_                                                     [8]byte
}

// usage is struct if_dqblk.
type usage struct {
	blockLimit, softBlockLimit, bytes  uint64
	inodeLimit, softInodeLimit, inodes uint64
	blockTime, inodeTime               uint64
	valid                              uint32
	_                                  uint32
}

// quotaState is struct fs_quota_statv.
type quotaState struct {
	version uint8
	_       uint8
	flags   uint16
	_       [156]byte
}

const (
	getAttributes   = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes   = 0x401c5820 // FS_IOC_FSSETXATTR
	inheritsProject = 0x200      // FS_XFLAG_PROJINHERIT

	ofProjects    = 2                        // PRJQUOTA
	getQuota      = 0x800007<<8 | ofProjects // Q_GETQUOTA
	setQuota      = 0x800008<<8 | ofProjects // Q_SETQUOTA
	getQuotaState = 0x5808<<8 | ofProjects   // Q_XGETQSTATV

	quotaBlock        = 1024   // QIF_DQBLKSIZE
	blockLimitsValid  = 1      // QIF_BLIMITS
	quotaStateVersion = 1      // FS_QSTATV_VERSION1
	projectsEnforced  = 1 << 5 // FS_QUOTA_PDQ_ENFD
)

// control calls ioctl with the attributes of a file.
func control(f *os.File, request uintptr, a *attributes) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(a))); errno != 0 {
		return &fs.PathError{Op: "ioctl", Path: f.Name(), Err: errno}
	}
	return nil
}

// quota calls quotactl_fd for the file system of a file.
func quota(f *os.File, command uintptr, project uint32, data unsafe.Pointer) error {
	if _, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), command, uintptr(project), uintptr(data), 0, 0); errno != 0 {
		return &fs.PathError{Op: "quotactl", Path: f.Name(), Err: errno}
	}
	return nil
}
