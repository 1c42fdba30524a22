package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/containerd"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/wireguard"
)

// prepared is a cluster that can be started: this process holds the lock of its
// data directory, and its settings are stored there.
type prepared struct {
	claim    *host.Claim
	serves   bool // the API server was ready, so that clients may have stored objects
	served   bool // it was ready before with the same settings, so that a failed start is retried
	settings host.Settings
	record   host.Record
}

// keeps reports whether a start that fails must leave the data where they are.
func (p *prepared) keeps() bool {
	return p.serves || !p.claim.New() || p.settings.HoldsMember()
}

// prepare determines the settings of the cluster, checks that it can start on
// this machine, and stores them. The registry must be locked. After an error
// nothing is left of a new cluster.
func (f *upFlags) prepare(ctx context.Context, registry host.Registry) (*prepared, error) {
	all, err := registry.List(warn)
	if err != nil {
		return nil, err
	}
	rec, err := f.found(registry)
	if err != nil {
		return nil, err
	}
	if rec.Running() { // another up has started it
		return nil, &host.BusyError{Cluster: rec.Name, PID: rec.PID}
	}
	runDir := cmp.Or(rec.RunDir, host.RunDir(f.settings.Options.Name))
	if err := host.CheckNotRunning(f.settings.Options.Name, runDir); err != nil {
		return nil, err
	}
	dir, err := f.directory(registry, all, rec)
	if err != nil {
		return nil, err
	}
	p := &prepared{}
	if p.claim, err = host.ClaimDir(ctx, dir, f.settings.Options.Name, rec.DataDir == dir); err != nil {
		return nil, err
	}
	// Processes that a killed supervisor has left still hold the ports.
	err = processes.EndLeftover(runDir, endTimeout)
	if err == nil {
		err = p.store(ctx, f, registry, all, rec)
	}
	if err != nil {
		if p.claim.New() {
			err = errors.Join(err, p.claim.Abandon(), p.claim.Vacate())
		}
		return nil, errors.Join(err, p.claim.Lock.Release())
	}
	return p, nil
}

// found returns the cluster's record. It returns an empty one if there is none,
// or if the record is damaged and --data-dir names the cluster's data. If the
// cluster must exist, none is an error.
func (f *upFlags) found(registry host.Registry) (host.Record, error) {
	rec, err := registry.Find(f.settings.Options.Name)
	if errors.Is(err, host.ErrNoCluster) {
		if f.existing {
			return host.Record{}, noClusterError(registry, f.settings.Options.Name)
		}
		return host.Record{}, nil
	}
	if errors.Is(err, host.ErrDamaged) && f.settings.Options.DataDir != "" {
		if _, ok := host.SettingsIn(f.settings.Options.DataDir, f.settings.Options.Name); ok {
			return host.Record{}, nil
		}
	}
	return rec, err
}

// directory returns the cluster's data directory: the present one, or
// --data-dir, or the default. It returns an error if the directory is, contains
// or is inside the data directory of another cluster.
func (f *upFlags) directory(registry host.Registry, all []host.Record, rec host.Record) (string, error) {
	dir := f.settings.Options.DataDir
	switch {
	case dir == "" && rec.DataDir != "":
		dir = rec.DataDir
	case dir == "":
		dir = registry.DataDir(f.settings.Options.Name)
	}
	dir, err := host.RealPath(dir)
	if err != nil {
		return "", fmt.Errorf("--data-dir=%s: %w", f.settings.Options.DataDir, err)
	}
	if rec.DataDir != "" && rec.DataDir != dir {
		if _, err := host.ReadSettings(rec.DataDir); !errors.Is(err, host.ErrNoSettings) {
			return "", fmt.Errorf("the data of cluster %s is in %s: leave --data-dir=%s out to start it, or remove it with coracle down --name=%s", rec.Name, rec.DataDir, f.settings.Options.DataDir, rec.Name)
		}
	}
	if rec.DataDir != "" {
		there := rec
		there.DataDir = dir
		if err := there.CheckData(); err != nil {
			return "", err
		}
	}
	for _, other := range all {
		if other.Name != f.settings.Options.Name && (host.Within(dir, other.DataDir) || host.Within(other.DataDir, dir)) {
			return "", fmt.Errorf("--data-dir=%s: cluster %s has its data in %s: choose another directory for cluster %s", dir, other.Name, other.DataDir, f.settings.Options.Name)
		}
	}
	if records := registry.Folder(); host.Within(dir, records) || host.Within(records, dir) {
		return "", fmt.Errorf("--data-dir=%s: the records of all clusters are in %s: choose another directory for cluster %s", dir, records, f.settings.Options.Name)
	}
	if sockets := filepath.Dir(host.RunDir(f.settings.Options.Name)); host.Within(dir, sockets) || host.Within(sockets, dir) {
		return "", fmt.Errorf("--data-dir=%s: the sockets of all clusters are in %s: choose another directory for cluster %s", dir, sockets, f.settings.Options.Name)
	}
	return dir, nil
}

// store determines the settings, checks that the cluster can start on this
// machine, and writes the settings and the cluster's record.
func (p *prepared) store(ctx context.Context, f *upFlags, registry host.Registry, all []host.Record, rec host.Record) error {
	kept, err := p.storedSettings(f, registry)
	if err != nil {
		return err
	}
	if err := f.keepRegistries(kept); err != nil {
		return err
	}
	settings, changes := kept.With(f.settings, f.set)
	if kept.Version == 0 { // new
		if err := f.checkRanges(); err != nil {
			return err
		}
		settings, changes = f.settings, nil
		settings.Options.DataDir, settings.SetFlags = kept.Options.DataDir, f.settingFlags()
		if p.claim.New() {
			settings.Found = p.claim.FoundKeys()
		}
	}
	if err := refused(f.settings.Options.Name, changes); err != nil {
		return err
	}
	chosen := settings.Options.Ports.Secure == 0
	if err := complete(&settings, all); err != nil {
		return err
	}
	if err := f.setMember(&settings, kept.Version == 0); err != nil {
		return err
	}
	former, others := settings.FormerHolders(all)
	if err := errors.Join(host.CheckRanges(settings, others), host.CheckNodePorts(settings, others)); err != nil {
		return err
	}
	if err := f.checkMachine(settings, chosen); err != nil {
		return err
	}
	if err := clearRanges(settings, former); err != nil {
		return err
	}
	if len(changes) > 0 {
		fmt.Printf("Cluster %s changes:\n", settings.Options.Name)
		for _, c := range changes {
			fmt.Println("  " + c.String())
		}
	}
	p.settings, p.record = settings, host.NewRecord(settings, rec)
	if joined := settings.Options.Node.Joined; joined != nil {
		p.record.Server = joined.Server
	}
	if f.foreground {
		p.record.Unit = host.ServiceUnit()
	}
	p.record.Made = p.claim.Made
	if rec.DataDir == p.claim.Dir {
		p.record.Made = append(rec.Directories(), p.claim.Made...)
	}
	if rec.Kubeconfig == "" { // there is no record
		rec.Kubeconfig = kept.Kubeconfig
	}
	if err := moveContext(ctx, rec, &p.record); err != nil {
		return err
	}
	if p.served = rec.Served && len(changes) == 0; !p.served && settings.Options.Node.Joined == nil {
		if err := host.CheckKubeconfig(settings.Kubeconfig); err != nil {
			return err
		}
	}
	if err := settings.Write(); err != nil {
		if err := p.warnInstead(err); err != nil {
			return err
		}
		p.settings = kept
	}
	return p.warnInstead(registry.Put(p.record))
}

// warnInstead prints err as a warning and returns nil if a cluster that was ready
// before can start in spite of it: its disk is full, or the machine has no
// network address yet. It returns all other errors.
func (p *prepared) warnInstead(err error) error { return p.startsWithOld("settings", err) }

// startsWithOld is warnInstead for an error because of which the cluster starts with
// something old.
func (p *prepared) startsWithOld(what string, err error) error {
	if !p.served || !host.NoRoom(err) && !errors.Is(err, apiserver.ErrNoAddress) {
		return err
	}
	fmt.Fprintf(os.Stderr, "coracle: warning: %v; cluster %s starts with its old %s; the next up tries this again\n", err, p.record.Name, what)
	return nil
}

// checkRanges returns an error if a new cluster cannot use --service-cidr.
func (f *upFlags) checkRanges() error {
	if f.settings.Options.ServiceCIDR == "" {
		return nil
	}
	return cluster.Check(cluster.Options{ServiceCIDR: f.settings.Options.ServiceCIDR})
}

// moveContext checks that now.Kubeconfig has no context of the cluster's name
// that is not the cluster's, and removes the context from a file that the
// cluster no longer uses.
func moveContext(ctx context.Context, before host.Record, now *host.Record) error {
	if before.Kubeconfig == now.Kubeconfig {
		return nil
	}
	taken, err := host.HasContext(now.Kubeconfig, now.Name)
	if err != nil {
		return err
	}
	if taken {
		return fmt.Errorf("%s has a context, cluster or user %s already, which is not this cluster's: choose another --name or --kubeconfig, or take it out with kubectl config unset {contexts,clusters,users}.%s", now.Kubeconfig, now.Name, now.Name)
	}
	if before.Kubeconfig == "" {
		return nil
	}
	now.Merged = host.Merged{}
	return host.RemoveContext(ctx, before.Kubeconfig, before.Name, before.Merged)
}

// storedSettings returns the settings in the data directory. For a new cluster
// they have its name and directory only.
func (p *prepared) storedSettings(f *upFlags, registry host.Registry) (host.Settings, error) {
	kept, err := host.ReadSettings(p.claim.Dir)
	if errors.Is(err, host.ErrNoSettings) && !p.claim.New() {
		return registry.SettingsOf(f.settings.Options.Name)
	}
	if errors.Is(err, host.ErrNoSettings) {
		return host.Settings{Options: cluster.Options{Name: f.settings.Options.Name, DataDir: p.claim.Dir}}, nil
	}
	return kept, err
}

// refused returns an error that names the changes that are not possible.
func refused(name string, changes []host.Change) error {
	var errs []error
	for _, c := range changes {
		if c.Refused != "" {
			what := "flag"
			if c.Field {
				what = "field"
			}
			errs = append(errs, fmt.Errorf("%s cannot be changed for cluster %s: %s; leave the %s out, or start another cluster with it", c, name, c.Refused, what))
		}
	}
	return errors.Join(errs...)
}

// complete fills in the settings that the user has not set. A value that was
// chosen once is kept.
func complete(s *host.Settings, all []host.Record) error {
	slot := s.FreeSlot(all)
	if slot >= host.MaxSlots {
		return fmt.Errorf("no ports are left for another cluster (%d are on this machine): take one down first", len(all))
	}
	node, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this host (give one with --node-name): %w", err)
	}
	bundle, err := bundleBesideBinary()
	if err != nil {
		return err
	}
	s.Complete(slot, strings.ToLower(node), bundle, host.DefaultKubeconfig())
	return nil
}

// clearRanges removes what the former clusters of a slot have left in the
// network of this machine: their bridges and rules have the addresses of the
// cluster that has the slot now. Their records stay, for down.
func clearRanges(s host.Settings, former []host.Record) error {
	for _, rec := range former {
		if s.Nodes == 0 || rec.Nodes == 0 {
			continue
		}
		node := rec.Node
		node.CNIConfDir = "" // another cluster may have written the file there
		if err := cluster.PurgeNetwork(cluster.Options{Name: rec.Name, DataDir: rec.DataDir, ClusterCIDR: rec.ClusterCIDR, Node: &node}); err != nil {
			return fmt.Errorf("cluster %s, whose data and processes are gone, had the address ranges of cluster %s: remove what is left of it with coracle down --name=%s: %w", rec.Name, s.Options.Name, rec.Name, err)
		}
	}
	return nil
}

// checkEncryption returns an error if the cluster is to have a node in an encrypted
// network here, and this machine cannot encrypt.
func checkEncryption(s host.Settings) error {
	if !s.Options.Encrypt || s.Nodes == 0 {
		return nil
	}
	return wireguard.Check()
}

// checkMachine returns an error if this machine cannot run the cluster now. With
// chosen, this command has chosen the port of the API server and found it free. If
// another process takes the port before the cluster starts, start chooses another
// one.
func (f *upFlags) checkMachine(s host.Settings, chosen bool) error {
	if err := errors.Join(host.CheckNames(s), host.Preflight(s.Nodes > 0), checkEncryption(s)); err != nil {
		return err
	}
	if err := cluster.Check(s.ClusterOptions()); err != nil {
		return err
	}
	if node := s.Options.Node; node.CNIConfDir != "" && node.ContainerRuntimeEndpoint == "" && node.Network == "" {
		return fmt.Errorf("--cni-conf-dir=%s: want with it --container-runtime-endpoint or --network=none", node.CNIConfDir)
	}
	if s.Options.Node.ContainerRuntimeEndpoint != "" && s.Nodes > 0 {
		if err := containerd.CheckEndpoint(s.Options.Node.ContainerRuntimeEndpoint); err != nil {
			return fmt.Errorf("--container-runtime-endpoint=%s: %w; start one there first, or leave the flag out for the bundled one", s.Options.Node.ContainerRuntimeEndpoint, err)
		}
	}
	if s.Options.Node.Joined != nil { // the API server is elsewhere
		return nil
	}
	err := host.PortsFree(s.Options.BindAddress, map[string]int{"--secure-port": s.Options.Ports.Secure})
	if foreign := (*host.AddressError)(nil); errors.As(err, &foreign) {
		return fmt.Errorf("--bind-address=%s: %w: choose one of its own, or 0.0.0.0 for all", s.Options.BindAddress, err)
	}
	if chosen {
		return nil
	}
	return err
}

// settingFlags returns the names of the set flags that are stored as settings.
func (f *upFlags) settingFlags() []string {
	var kept host.Settings
	now, _ := kept.With(f.settings, f.set)
	return now.SetFlags
}

// alreadyUp handles up for a running cluster: it waits until the cluster works,
// and refuses flags that would change its settings.
func (f *upFlags) alreadyUp(ctx context.Context, registry host.Registry, rec host.Record) error {
	kept, err := host.ReadSettings(rec.DataDir)
	if err != nil {
		return err
	}
	if f.settings.Options.DataDir != "" {
		dir, err := host.RealPath(f.settings.Options.DataDir)
		if err != nil {
			return fmt.Errorf("--data-dir=%s: %w", f.settings.Options.DataDir, err)
		}
		if dir != rec.DataDir {
			return fmt.Errorf("cluster %s is running and has its data in %s, not in %s: choose another --name for another cluster", rec.Name, rec.DataDir, dir)
		}
	}
	if err := f.keepRegistries(kept); err != nil {
		return err
	}
	_, changes := kept.With(f.settings, f.set)
	if err := refused(rec.Name, changes); err != nil {
		return err
	}
	if len(changes) > 0 {
		var list []string
		for _, c := range changes {
			list = append(list, c.String())
		}
		return fmt.Errorf("cluster %s is running and cannot change now (%s): end it with coracle stop --name=%s, then run up again with these flags", rec.Name, strings.Join(list, ", "), rec.Name)
	}
	if f.foreground {
		return fmt.Errorf("cluster %s is running in the background already (process %d): end it with coracle stop --name=%s, then run up --foreground again", rec.Name, rec.PID, rec.Name)
	}
	if err := f.storeManifests(ctx, rec); err != nil {
		return err
	}
	if err := f.awaitWorking(ctx, rec); err != nil {
		return err
	}
	if err := restore(ctx, registry, rec); err != nil {
		return fmt.Errorf("cluster %s is up at %s, but: %w", rec.Name, rec.Server, err)
	}
	fmt.Printf("Cluster %s is up already at %s.\n", rec.Name, rec.Server)
	return nil
}

// statusPoll is the interval at which awaitWorking checks a cluster.
const statusPoll = 500 * time.Millisecond

// errEnded is the error of a cluster that ends while up waits for it, such as one whose
// supervisor was killed just before.
var errEnded = errors.New("the cluster has ended")

// awaitWorking waits until all of a running cluster works, except for what does not keep
// it from working (minorError). It prints what does not work, and gives up after
// --timeout, or at once if waiting cannot help. The error is errEnded if the cluster does
// not run.
func (f *upFlags) awaitWorking(ctx context.Context, rec host.Record) error {
	timeout := time.NewTimer(f.timeout)
	defer timeout.Stop()
	for waiting := false; ; waiting = true {
		c := statusOf(ctx, rec)
		if !c.Running {
			return errEnded
		}
		if c.notReady == nil || c.hasSuspended {
			return c.notReady
		}
		if !waiting {
			fmt.Printf("Cluster %s is running, but not ready; waiting for it: %s\n", rec.Name, strings.ReplaceAll(c.notReady.Error(), "\n", "; "))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			return fmt.Errorf("not all of cluster %s works after %v; it keeps trying: see coracle status --name=%s, or end it with coracle stop --name=%s: %w", rec.Name, f.timeout, rec.Name, rec.Name, c.notReady)
		case <-time.After(statusPoll):
		}
	}
}

// restore writes again what a running cluster has lost outside of its data
// directory: its record and its context.
func restore(ctx context.Context, registry host.Registry, rec host.Record) error {
	return registry.Locked(ctx, func() error {
		now, err := registry.Get(rec.Name)
		lost := errors.Is(err, host.ErrNoCluster) || errors.Is(err, host.ErrDamaged)
		if err != nil && !lost {
			return err
		}
		if lost {
			now = rec
			now.Served, now.Started = true, time.Now().UTC()
			fmt.Printf("The record of cluster %s was lost and has been rewritten.\n", rec.Name)
		}
		has, err := host.HasContext(now.Kubeconfig, now.Name)
		if err != nil {
			return err
		}
		has = has || now.Node.Joined != nil // the administrator's context is on another machine
		if !has {
			admin, err := adminContext(now)
			if err != nil {
				return err
			}
			if err := writeContext(ctx, &now, admin); err != nil {
				return err
			}
			fmt.Printf("Context %s was missing in %s and has been rewritten.\n", now.Name, now.Kubeconfig)
		}
		if !lost && has {
			return nil
		}
		return registry.Put(now)
	})
}
