package processes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Owner is the supervisor of a cluster.
type Owner struct {
	PID     int    `json:"-"` // from the kernel's lock
	DataDir string `json:"dataDir"`
}

// maxOwner bounds an owner file, in bytes.
const maxOwner = 8 << 10

func ownerFile(runDir string) string { return runDir + "/supervisor" }

// lockRunDir makes this process the only supervisor of a run directory until it ends.
// The lock is one of fcntl(2): children do not inherit it, and others can read
// its owner without taking it. The caller must keep the file open.
func lockRunDir(runDir, dataDir string) (*os.File, error) {
	f, err := os.OpenFile(ownerFile(runDir), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock); err != nil {
		_ = f.Close()
		if owner, ok, _ := OwnerOf(runDir); ok {
			return nil, fmt.Errorf("process %d runs the cluster of %s in %s: stop it first", owner.PID, runDir, owner.DataDir)
		}
		return nil, fmt.Errorf("lock %s: %w", ownerFile(runDir), err)
	}
	raw, err := json.Marshal(Owner{DataDir: dataDir})
	if err == nil && f.Truncate(0) == nil {
		_, _ = f.WriteAt(raw, 0) // the lock alone shows that there is an owner
	}
	return f, err
}

// OwnerOf returns the running supervisor of a run directory. ok is false if
// there is none.
func OwnerOf(runDir string) (o Owner, ok bool, err error) {
	f, err := os.OpenFile(ownerFile(runDir), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return o, false, nil
	}
	if err != nil {
		return o, false, err
	}
	defer func() { _ = f.Close() }()
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &lock); err != nil {
		return o, false, fmt.Errorf("find the owner of %s: %w", ownerFile(runDir), err)
	}
	if lock.Type == syscall.F_UNLCK {
		return o, false, nil
	}
	if raw, err := io.ReadAll(io.LimitReader(f, maxOwner)); err == nil {
		_ = json.Unmarshal(raw, &o)
	}
	o.PID = int(lock.Pid)
	return o, true, nil
}
