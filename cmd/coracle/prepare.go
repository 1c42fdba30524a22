package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/version"
)

// prepared is a cluster that can be started: its data directory is this
// process's, and its settings are kept there.
type prepared struct {
	claim    *host.Claim
	serves   bool // others may have stored something in it
	served   bool // as it is to be started now, so that a start that fails is tried again
	settings host.Settings
	record   host.Record
}

// clusterOptions are the options of the cluster that settings describe. Every
// process of the cluster makes its own from the file in the data directory.
func clusterOptions(s host.Settings) cluster.Options {
	o := cluster.Options{
		Name: s.Name, DataDir: s.DataDir, BindAddress: s.BindAddress, Ports: cluster.Ports(s.Ports), NodeName: s.NodeName, LogLevels: s.LogLevels,
		ServiceCIDR: s.ServiceCIDR, ClusterCIDR: s.ClusterCIDR, NodePorts: s.NodePorts,
		Etcd:          &cluster.EtcdOptions{Servers: s.EtcdServers, Socket: host.EtcdSocket(s.Name)},
		APIServerArgs: s.APIServerArgs, ControllerManagerArgs: s.ControllerManagerArgs, SchedulerArgs: s.SchedulerArgs,
		KubeletArgs: s.KubeletArgs, ProxyArgs: s.ProxyArgs, EtcdArgs: s.EtcdArgs,
	}
	if s.Nodes > 0 {
		o.Node = &cluster.NodeOptions{
			Apart: true, BundleDir: s.Bundle, ContainerRuntimeEndpoint: s.ContainerRuntimeEndpoint, CNIConfDir: s.CNIConfDir,
			NFTable: s.NFTable, CgroupRoot: s.CgroupRoot,
		}
	}
	return o
}

// prepare works out what the cluster is to be, checks that it can be, and keeps
// that. The registry is locked. After an error nothing is left of it.
func (f *upFlags) prepare(ctx context.Context, registry host.Registry) (*prepared, error) {
	all, err := list(registry)
	if err != nil {
		return nil, err
	}
	rec, err := f.found(registry)
	if err != nil {
		return nil, err
	}
	if rec.Running() { // another up has started it meanwhile
		return nil, &host.BusyError{Cluster: rec.Name, PID: rec.PID}
	}
	if err := refuseOwned(f.told.Name); err != nil {
		return nil, err
	}
	dir, err := f.directory(registry, all, rec)
	if err != nil {
		return nil, err
	}
	p := &prepared{}
	if p.claim, err = host.ClaimDir(ctx, dir, f.told.Name, rec.DataDir == dir); err != nil {
		return nil, err
	}
	// What a supervisor that was killed may have left still has the ports.
	err = processes.EndLeft(host.RunDir(f.told.Name), endPatience)
	if err == nil {
		err = p.keep(ctx, f, registry, all, rec)
	}
	if err != nil {
		if p.claim.New() {
			err = errors.Join(err, p.claim.Abandon(), p.claim.Vacate())
		}
		return nil, errors.Join(err, p.claim.Lock.Release())
	}
	return p, nil
}

// found is the cluster's record; an empty one if there is none, or a damaged
// one in place of which the data directory is given.
func (f *upFlags) found(registry host.Registry) (host.Record, error) {
	rec, err := find(registry, f.told.Name)
	if errors.Is(err, host.ErrNoCluster) {
		return host.Record{}, nil
	}
	if errors.Is(err, host.ErrDamaged) && f.dataDir != "" {
		if s, err := host.ReadSettings(f.dataDir); err == nil && s.Name == f.told.Name {
			return host.Record{}, nil
		}
	}
	return rec, err
}

// directory is the cluster's data directory: where it has been, or else where
// it is asked for. It may not be that of another cluster, nor in or above it.
func (f *upFlags) directory(registry host.Registry, all []host.Record, rec host.Record) (string, error) {
	dir := f.dataDir
	switch {
	case dir == "" && rec.DataDir != "":
		dir = rec.DataDir
	case dir == "":
		dir = registry.DataDir(f.told.Name)
	}
	dir, err := host.RealPath(dir)
	if err != nil {
		return "", fmt.Errorf("--data-dir=%s: %w", f.dataDir, err)
	}
	if rec.DataDir != "" && rec.DataDir != dir {
		if _, err := host.ReadSettings(rec.DataDir); !errors.Is(err, host.ErrNoSettings) {
			return "", fmt.Errorf("the data of cluster %s is in %s: leave --data-dir=%s out to start it, or take it away with coracle down --name=%s", rec.Name, rec.DataDir, f.dataDir, rec.Name)
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
		if other.Name != f.told.Name && (host.Within(dir, other.DataDir) || host.Within(other.DataDir, dir)) {
			return "", fmt.Errorf("--data-dir=%s: cluster %s has its data in %s: choose another directory for cluster %s", dir, other.Name, other.DataDir, f.told.Name)
		}
	}
	if records := registry.Folder(); host.Within(dir, records) || host.Within(records, dir) {
		return "", fmt.Errorf("--data-dir=%s: the records of all clusters are in %s: choose another directory for cluster %s", dir, records, f.told.Name)
	}
	return dir, nil
}

// keep settles the settings, checks that this machine can carry the cluster,
// and writes them with the cluster's record.
func (p *prepared) keep(ctx context.Context, f *upFlags, registry host.Registry, all []host.Record, rec host.Record) error {
	kept, err := p.kept(f, rec)
	if err != nil {
		return err
	}
	settings, changes := kept.With(f.told, f.given)
	if kept.NFTable == "" { // new
		if err := f.checkRanges(); err != nil {
			return err
		}
		settings, changes = f.told, nil
		settings.DataDir, settings.Told = kept.DataDir, f.settingFlags()
	}
	if err := refused(f.told.Name, changes); err != nil {
		return err
	}
	if err := complete(&settings, all); err != nil {
		return err
	}
	if err := errors.Join(host.CheckRanges(settings, all), host.CheckNodePorts(settings, all)); err != nil {
		return err
	}
	if err := f.possible(settings); err != nil {
		return err
	}
	if len(changes) > 0 {
		fmt.Printf("Cluster %s changes:\n", settings.Name)
		for _, c := range changes {
			fmt.Println("  " + c.String())
		}
	}
	p.settings, p.record = settings, recordOf(settings, rec)
	if f.foreground {
		p.record.Unit = host.ServiceUnit()
	}
	p.record.Made = p.claim.Made
	if rec.DataDir == p.claim.Dir {
		p.record.Made = append(rec.Directories(), p.claim.Made...)
	}
	if rec.Kubeconfig == "" { // the record was lost, or there was none
		rec.Kubeconfig = kept.Kubeconfig
	}
	if err := moveContext(ctx, rec, &p.record); err != nil {
		return err
	}
	if p.served = rec.Served && len(changes) == 0; !p.served {
		if err := host.CheckKubeconfig(settings.Kubeconfig); err != nil {
			return err
		}
	}
	if err := settings.Write(); err != nil {
		if !p.startsAnyway(err) {
			return err
		}
		p.settings = kept
	}
	if err := registry.Put(p.record); err != nil && !p.startsAnyway(err) {
		return err
	}
	return nil
}

// startsAnyway reports whether a cluster that has served can be started as it
// was, whatever failed now: its disk is full, or the network is not there yet.
func (p *prepared) startsAnyway(err error) bool {
	if !p.served || !host.NoRoom(err) && !errors.Is(err, apiserver.ErrNoAddress) {
		return false
	}
	fmt.Fprintf(os.Stderr, "coracle: warning: %v; cluster %s is started as it was, and this is tried again\n", err, p.record.Name)
	return true
}

// checkRanges reports address ranges that a cluster could not begin with.
func (f *upFlags) checkRanges() error {
	if f.told.ServiceCIDR == "" {
		return nil
	}
	return cluster.Check(cluster.Options{ServiceCIDR: f.told.ServiceCIDR})
}

// moveContext sees to it that a context of the cluster's name is the cluster's:
// one that is there before the cluster is somebody else's, and one in a file
// that the cluster no longer uses is taken out.
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

// kept are the settings in the data directory; of a new cluster, only where it is.
func (p *prepared) kept(f *upFlags, rec host.Record) (host.Settings, error) {
	kept, err := host.ReadSettings(p.claim.Dir)
	if errors.Is(err, host.ErrNoSettings) && !p.claim.New() {
		return host.SettingsOf(rec)
	}
	if errors.Is(err, host.ErrNoSettings) {
		return host.Settings{Name: f.told.Name, DataDir: p.claim.Dir}, nil
	}
	return kept, err
}

// refused is an error that names the changes that cannot be.
func refused(name string, changes []host.Change) error {
	var errs []error
	for _, c := range changes {
		if c.Refused != "" {
			errs = append(errs, fmt.Errorf("%s cannot change in cluster %s: %s; leave the flag out, or start another cluster with it", c, name, c.Refused))
		}
	}
	return errors.Join(errs...)
}

// complete chooses what was not told, once for all time.
func complete(s *host.Settings, all []host.Record) error {
	slot := host.FreeSlot(all, s.Name, func(slot int) bool { return host.DefaultsOf(s.Name, slot).InnerPortsFree() })
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

// possible reports why this machine cannot run such a cluster now.
func (f *upFlags) possible(s host.Settings) error {
	if err := errors.Join(host.CheckNames(s), host.Preflight(s.Nodes > 0)); err != nil {
		return err
	}
	if err := cluster.Check(clusterOptions(s)); err != nil {
		return err
	}
	if s.CNIConfDir != "" && (s.ContainerRuntimeEndpoint == "" || !filepath.IsAbs(s.CNIConfDir)) {
		return fmt.Errorf("--cni-conf-dir=%s: want an absolute path, and with it --container-runtime-endpoint", s.CNIConfDir)
	}
	if s.ContainerRuntimeEndpoint != "" && s.Nodes > 0 {
		if err := host.RuntimeAnswers(s.ContainerRuntimeEndpoint); err != nil {
			return fmt.Errorf("--container-runtime-endpoint=%s: %w; start one there first, or leave the flag out for the bundled one", s.ContainerRuntimeEndpoint, err)
		}
	}
	err := host.PortsFree(s.BindAddress, map[string]int{"--secure-port": s.Ports.Secure})
	if foreign := (*host.AddressError)(nil); errors.As(err, &foreign) {
		return fmt.Errorf("--bind-address=%s: %w: choose one of its own, or 0.0.0.0 for all", s.BindAddress, err)
	}
	return err
}

// recordOf says on this machine where a cluster is.
func recordOf(s host.Settings, before host.Record) host.Record {
	return host.Record{
		Name: s.Name, Slot: s.Slot, DataDir: s.DataDir, Kubeconfig: s.Kubeconfig, Merged: before.Merged, Settled: true, Served: before.Served,
		Server:  "https://" + net.JoinHostPort(reachable(s.BindAddress), fmt.Sprint(s.Ports.Secure)),
		NFTable: s.NFTable, CgroupRoot: s.CgroupRoot, ExternalCRI: s.ContainerRuntimeEndpoint, CNIConfDir: s.CNIConfDir,
		ServiceCIDR: s.ServiceCIDR, ClusterCIDR: s.ClusterCIDR, NodePorts: s.NodePortRange(), EtcdServers: s.EtcdServers, ControlOnly: s.Nodes == 0,
		BundleDir: s.Bundle, Started: time.Now().UTC(), BinaryVersion: version.Kubernetes,
	}
}

// settingFlags are the flags given that are kept.
func (f *upFlags) settingFlags() []string {
	var kept host.Settings
	now, _ := kept.With(f.told, f.given)
	return now.Told
}

// alreadyUp answers for a cluster that runs: it takes no changes on, and says so.
func (f *upFlags) alreadyUp(ctx context.Context, registry host.Registry, rec host.Record) error {
	kept, err := host.ReadSettings(rec.DataDir)
	if err != nil {
		return err
	}
	if f.dataDir != "" {
		dir, err := host.RealPath(f.dataDir)
		if err != nil {
			return fmt.Errorf("--data-dir=%s: %w", f.dataDir, err)
		}
		if dir != rec.DataDir {
			return fmt.Errorf("cluster %s is running and has its data in %s, not in %s: choose another --name for another cluster", rec.Name, rec.DataDir, dir)
		}
	}
	_, changes := kept.With(f.told, f.given)
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
	if err := f.awaitWork(ctx, rec); err != nil {
		return err
	}
	if err := rewrite(ctx, registry, rec); err != nil {
		return fmt.Errorf("cluster %s is up at %s, but: %w", rec.Name, rec.Server, err)
	}
	fmt.Printf("Cluster %s is up already at %s.\n", rec.Name, rec.Server)
	return nil
}

// lookAgain is how often a cluster is looked at that does not work yet.
const lookAgain = 500 * time.Millisecond

// awaitWork waits until all of a cluster that runs works, and says meanwhile
// what does not. It gives up after --timeout, and at once if waiting is in vain.
func (f *upFlags) awaitWork(ctx context.Context, rec host.Record) error {
	timeout := time.NewTimer(f.timeout)
	defer timeout.Stop()
	for told := false; ; told = true {
		c := look(ctx, rec)
		if c.err == nil || c.held || !c.Running {
			return c.err
		}
		if !told {
			fmt.Printf("Cluster %s runs, but not all of it works; waiting for it: %s\n", rec.Name, strings.ReplaceAll(c.Problem, "\n", "; "))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			return fmt.Errorf("not all of cluster %s works after %v; it goes on trying: see coracle status --name=%s, or end it with coracle stop --name=%s: %w", rec.Name, f.timeout, rec.Name, rec.Name, c.err)
		case <-time.After(lookAgain):
		}
	}
}

// rewrite puts back what a cluster that runs has lost outside of its data: its
// record, and its context.
func rewrite(ctx context.Context, registry host.Registry, rec host.Record) error {
	return registry.Locked(ctx, func() error {
		now, err := registry.Get(rec.Name)
		lost := errors.Is(err, host.ErrNoCluster) || errors.Is(err, host.ErrDamaged)
		if err != nil && !lost {
			return err
		}
		if lost {
			now = rec
			now.Served, now.Started = true, time.Now().UTC()
			fmt.Printf("Cluster %s had lost its record, which is written again.\n", rec.Name)
		}
		has, err := host.HasContext(now.Kubeconfig, now.Name)
		if err != nil {
			return err
		}
		if !has {
			admin, err := adminContext(now)
			if err != nil {
				return err
			}
			if err := writeContext(ctx, &now, admin); err != nil {
				return err
			}
			fmt.Printf("Context %s was missing in %s and is written again.\n", now.Name, now.Kubeconfig)
		}
		if !lost && has {
			return nil
		}
		return registry.Put(now)
	})
}
