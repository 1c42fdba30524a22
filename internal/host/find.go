package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/version"
)

// Find returns the record of a cluster on this machine. If the record is
// missing or damaged, Find derives it from the running supervisor, or from the
// data in the default directory.
func (r Registry) Find(name string) (Record, error) {
	rec, err := r.Get(name)
	if err == nil {
		return withSupervisor(rec), nil
	}
	if !errors.Is(err, ErrNoCluster) && !errors.Is(err, ErrDamaged) {
		return rec, err
	}
	owner, lives, ownerErr := processes.OwnerOf(RunDir(name))
	if ownerErr != nil {
		return Record{}, errors.Join(err, ownerErr)
	}
	dir := r.DataDir(name)
	if lives {
		dir = owner.DataDir
	}
	if s, ok := SettingsIn(dir, name); ok {
		return r.recovered(s), nil
	}
	if lives {
		return Record{}, fmt.Errorf("cluster %s runs as process %d with its data in %s, but its record and its settings are lost: put %s back, or end it with kill %d", name, owner.PID, dir, SettingsFile(dir), owner.PID)
	}
	return Record{}, err
}

// SettingsIn returns the settings in a data directory. ok is false if they cannot
// be read or belong to another cluster.
func SettingsIn(dir, name string) (s Settings, ok bool) {
	s, err := ReadSettings(dir)
	return s, err == nil && s.Options.Name == name
}

// recovered returns a record derived from a cluster's settings and its running
// supervisor.
func (r Registry) recovered(s Settings) Record {
	rec := NewRecord(s, Record{})
	rec.Started = time.Time{}
	if s.Options.DataDir == r.DataDir(s.Options.Name) {
		rec.Made = []string{s.Options.DataDir}
	}
	return withSupervisor(rec)
}

// withSupervisor returns a record with the running supervisor, which may have
// failed to update it.
func withSupervisor(rec Record) Record {
	if rec.Running() {
		return rec
	}
	owner, lives, err := processes.OwnerOf(rec.RunDirectory())
	if err != nil || !lives || owner.DataDir != rec.DataDir {
		return rec
	}
	if start, err := StartTime(owner.PID); err == nil {
		rec.PID, rec.PIDStart = owner.PID, start
	}
	return rec
}

// List returns the clusters on this machine. It leaves damaged records out and
// calls warn for each, so that they do not keep other clusters from starting and
// ending.
func (r Registry) List(warn func(error)) ([]Record, error) {
	names, err := r.Names()
	if err != nil {
		return nil, err
	}
	var all []Record
	for _, name := range names {
		rec, err := r.Find(name)
		switch {
		case err == nil:
			all = append(all, rec)
		case errors.Is(err, ErrDamaged):
			warn(err)
		case !errors.Is(err, ErrNoCluster): // it was removed meanwhile
			return nil, err
		}
	}
	return all, nil
}

// InDirectory returns the cluster with a data directory, or a record without a
// name if there is none. warn is as in List.
func (r Registry) InDirectory(dir string, warn func(error)) (Record, error) {
	dir, err := RealPath(dir)
	if err != nil {
		return Record{}, err
	}
	all, err := r.List(warn)
	if err != nil {
		return Record{}, err
	}
	s, settingsErr := ReadSettings(dir)
	for _, rec := range all {
		if rec.DataDir == dir {
			return rec, nil
		}
		if rec.Name == s.Options.Name { // the directory is a copy of that cluster's data
			return Record{}, nil
		}
	}
	if errors.Is(settingsErr, ErrNoSettings) {
		return Record{}, nil
	}
	if settingsErr != nil {
		return Record{}, settingsErr
	}
	return r.recovered(s), nil
}

// CheckNotRunning returns an error while a supervisor runs a cluster of that
// name, with that directory of sockets.
func CheckNotRunning(name, runDir string) error {
	owner, lives, err := processes.OwnerOf(runDir)
	if err == nil && lives {
		err = fmt.Errorf("process %d runs cluster %s with its data in %s: end it with coracle stop --name=%s, or choose another --name", owner.PID, name, owner.DataDir, name)
	}
	return err
}

// NewRecord returns the record of a cluster that starts now. It keeps what before
// says of earlier starts.
func NewRecord(s Settings, before Record) Record {
	return Record{
		Slot: s.Slot, Kubeconfig: s.Kubeconfig, RunDir: s.RunDir, Nodes: s.Nodes, Occupied: s.Occupied(), Merged: before.Merged, Settled: true, Served: before.Served,
		Server:  "https://" + net.JoinHostPort(reachable(s.Options.BindAddress), fmt.Sprint(s.Options.Ports.Secure)),
		Started: time.Now().UTC(), BinaryVersion: version.Kubernetes,
	}
}

// reachable returns the address at which a client on this machine reaches a
// server that listens on bind.
func reachable(bind string) string {
	if ip := net.ParseIP(bind); ip == nil || ip.IsUnspecified() {
		return "127.0.0.1"
	}
	return bind
}

// Present returns the names of the clusters on this machine: those with a
// record, even if it is damaged, and those whose data are where up puts them.
func (r Registry) Present() ([]string, error) {
	names, err := r.Names()
	if err != nil {
		return nil, err
	}
	dirs, err := os.ReadDir(filepath.Dir(r.Folder()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, dir := range dirs {
		if _, err := os.Lstat(SettingsFile(r.DataDir(dir.Name()))); err == nil && !slices.Contains(names, dir.Name()) {
			names = append(names, dir.Name())
		}
	}
	return names, nil
}
