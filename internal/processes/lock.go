package processes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// Owner says who supervises a cluster.
type Owner struct {
	PID     int    `json:"-"` // as the kernel knows it
	DataDir string `json:"dataDir"`
}

// maxOwner bounds what is read of an owner, in bytes.
const maxOwner = 8 << 10

func ownerFile(runDir string) string { return runDir + "/supervisor" }

// own makes this process the one supervisor of a run directory until it ends.
// The lock is one of fcntl(2): no child inherits it, and others can ask who
// has it without taking it. The file must stay open.
func own(runDir, dataDir string) (*os.File, error) {
	f, err := os.OpenFile(ownerFile(runDir), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock); err != nil {
		_ = f.Close()
		if owner, ok, _ := OwnerOf(runDir); ok {
			return nil, fmt.Errorf("process %d runs the cluster of %s in %s: end that first", owner.PID, runDir, owner.DataDir)
		}
		return nil, fmt.Errorf("lock %s: %w", ownerFile(runDir), err)
	}
	raw, err := json.Marshal(Owner{DataDir: dataDir})
	if err == nil && f.Truncate(0) == nil {
		_, _ = f.WriteAt(raw, 0) // who cannot read it still learns that there is an owner
	}
	return f, err
}

// OwnerOf returns the supervisor that lives; ok is false if there is none.
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
		return o, false, fmt.Errorf("ask who has %s: %w", ownerFile(runDir), err)
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
