package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
)

// existing is find for commands that make no sense without a cluster.
func existing(registry host.Registry, name string) (host.Record, error) {
	rec, err := find(registry, name)
	if errors.Is(err, host.ErrNoCluster) {
		return rec, codedError{fmt.Errorf("no cluster %s is on this machine: start one with coracle up --name=%s", name, name), exitNoCluster}
	}
	return rec, err
}

// find returns the record of a cluster on this machine. One whose record is
// lost or damaged is known by its supervisor, or by its data in the default
// directory.
func find(registry host.Registry, name string) (host.Record, error) {
	rec, err := registry.Get(name)
	if err == nil {
		return withSupervisor(rec), nil
	}
	if !errors.Is(err, host.ErrNoCluster) && !errors.Is(err, host.ErrDamaged) {
		return rec, err
	}
	owner, lives, ownerErr := processes.OwnerOf(host.RunDir(name))
	if ownerErr != nil {
		return host.Record{}, errors.Join(err, ownerErr)
	}
	dir := registry.DataDir(name)
	if lives {
		dir = owner.DataDir
	}
	if s, err := host.ReadSettings(dir); err == nil && s.Name == name {
		return recovered(registry, s), nil
	}
	if lives {
		return host.Record{}, fmt.Errorf("cluster %s runs as process %d with its data in %s, but its record and its settings are lost: put %s back, or end it with kill %d", name, owner.PID, dir, host.SettingsFile(dir), owner.PID)
	}
	return host.Record{}, err
}

// recovered is the record of a cluster that has lost it, as far as its settings
// and its supervisor know it.
func recovered(registry host.Registry, s host.Settings) host.Record {
	rec := recordOf(s, host.Record{})
	rec.Started = time.Time{}
	if s.DataDir == registry.DataDir(s.Name) {
		rec.Made = []string{s.DataDir}
	}
	return withSupervisor(rec)
}

// withSupervisor is a record with the supervisor that lives, which may not have
// found room to write itself into it.
func withSupervisor(rec host.Record) host.Record {
	if rec.Running() {
		return rec
	}
	owner, lives, err := processes.OwnerOf(host.RunDir(rec.Name))
	if err != nil || !lives || owner.DataDir != rec.DataDir {
		return rec
	}
	if start, err := host.StartTime(owner.PID); err == nil {
		rec.PID, rec.PIDStart = owner.PID, start
	}
	return rec
}

// list returns the clusters on this machine. One with a damaged record, of
// which nothing is known, keeps nobody from starting or ending another.
func list(registry host.Registry) ([]host.Record, error) {
	names, err := registry.Names()
	if err != nil {
		return nil, err
	}
	var all []host.Record
	for _, name := range names {
		rec, err := find(registry, name)
		switch {
		case err == nil:
			all = append(all, rec)
		case errors.Is(err, host.ErrDamaged):
			fmt.Fprintln(os.Stderr, "coracle: warning:", err)
		case !errors.Is(err, host.ErrNoCluster): // it went meanwhile
			return nil, err
		}
	}
	return all, nil
}

// inDirectory finds the cluster that has its data in a directory; a record
// without a name if there is none.
func inDirectory(registry host.Registry, dir string) (host.Record, error) {
	dir, err := host.RealPath(dir)
	if err != nil {
		return host.Record{}, err
	}
	all, err := list(registry)
	if err != nil {
		return host.Record{}, err
	}
	s, settingsErr := host.ReadSettings(dir)
	for _, rec := range all {
		if rec.DataDir == dir {
			return rec, nil
		}
		if rec.Name == s.Name { // that one is elsewhere, and this a copy of its data
			return host.Record{}, nil
		}
	}
	if errors.Is(settingsErr, host.ErrNoSettings) {
		return host.Record{}, nil
	}
	if settingsErr != nil {
		return host.Record{}, settingsErr
	}
	return recovered(registry, s), nil
}

// refuseOwned is an error while a supervisor runs a cluster of that name.
func refuseOwned(name string) error {
	owner, lives, err := processes.OwnerOf(host.RunDir(name))
	if err == nil && lives {
		err = fmt.Errorf("process %d runs cluster %s with its data in %s: end it with coracle stop --name=%s, or choose another --name", owner.PID, name, owner.DataDir, name)
	}
	return err
}
