package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/memory"
	"github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/processes/heap"
	"github.com/coracle-io/coracle/internal/processes/oomscore"
	"github.com/coracle-io/coracle/internal/supervise"
)

// errReported is an error that is reported already: by the supervisor, or in
// the output of the command.
var errReported = errors.New("already reported")

// runCommand is one process of a cluster, which the supervisor starts. The
// process reads its settings from the data directory.
func runCommand() *cobra.Command {
	var name, dataDir string
	var first, served bool
	node := 1
	cmd := &cobra.Command{Use: processes.RunCommand, Hidden: true}
	add := func(use string, run func(ctx context.Context, r *processes.Reporter, o cluster.Options) error) *cobra.Command {
		one := &cobra.Command{Use: use, Args: noArguments, RunE: func(cmd *cobra.Command, _ []string) error {
			err := enterNode(dataDir, node) // before the reporter keeps the supervisor's descriptors for this program
			r := processes.NewReporter()
			if err == nil {
				err = supervise.IgnoreCanceled(runStored(cmd.Context(), r, dataDir, served, run))
			}
			if err == nil {
				return nil
			}
			if r.Send(processes.Message{Failed: inFlags(err), Final: errors.Is(err, cluster.ErrDamaged)}) {
				return errReported
			}
			return err
		}}
		one.Flags().StringVar(&name, "name", "", "name of the cluster")
		one.Flags().StringVar(&dataDir, "data-dir", "", "its data directory")
		one.Flags().BoolVar(&served, "served", false, "wait for a network address, because the cluster was ready before")
		one.Flags().Bool("several", false, "there are several nodes, as the settings say: the supervisor starts a process again when its command line changes")
		cmd.AddCommand(one)
		return one
	}
	add(processes.ControlPlane, func(ctx context.Context, r *processes.Reporter, o cluster.Options) error {
		processes.SetName(processes.ControlPlane)
		return runControlPlane(ctx, r, o, first)
	}).Flags().BoolVar(&first, "first", false, "record the cluster and write its context to the kubeconfig")
	ofNode := add(processes.Node, func(ctx context.Context, r *processes.Reporter, o cluster.Options) error {
		processes.SetName(processes.NodeProcess(node))
		o.Node.Number = node
		return runNode(ctx, r, o, first)
	}).Flags()
	ofNode.IntVar(&node, "node", node, "which node of this machine")
	ofNode.BoolVar(&first, "first", false, "record the node, whose control plane is on another machine")
	return cmd
}

// enterNode starts this program again in the namespaces of a further node, unless
// it is there.
func enterNode(dataDir string, node int) error {
	if node == 1 {
		return nil
	}
	settings, err := host.ReadSettings(dataDir)
	if err != nil {
		return err
	}
	o := settings.ClusterOptions()
	o.Node.Number = node
	return cluster.EnterNode(o)
}

// runStored runs a part of the cluster with the settings in a data directory.
// If served is set, it first waits until the machine has a network address.
func runStored(ctx context.Context, r *processes.Reporter, dataDir string, served bool, run func(context.Context, *processes.Reporter, cluster.Options) error) error {
	settings, err := host.ReadSettings(dataDir)
	if err != nil {
		return err
	}
	log, err := openLog(dataDir)
	if err != nil {
		return err
	}
	o := settings.ClusterOptions()
	if o.Node != nil {
		o.Node.Present = presentNodes(dataDir)
	}
	o.ControlPlane.FollowAddress = true // the supervisor starts the processes again
	o.ControlPlane.MoveMember = func(ctx context.Context, to net.IP) error { return moveMember(ctx, o.Name, to) }
	o.Log, o.Progress = log, func(stage string) { r.Send(processes.Message{Stage: stage}) }
	if served {
		if err := awaitAddress(ctx, r, func() error { return cluster.CheckAddress(o) }); err != nil {
			return err
		}
	}
	return run(ctx, r, o)
}

// presentNodes returns a function that returns the names of the nodes that a cluster has
// now, by number: coracle node changes them. While the settings cannot be read, these
// are the nodes of before.
func presentNodes(dataDir string) func() map[int]string {
	var mu sync.Mutex
	var last map[int]string // guarded by mu
	return func() map[int]string {
		mu.Lock()
		defer mu.Unlock()
		if settings, err := host.ReadSettings(dataDir); err == nil {
			o := settings.ClusterOptions()
			last = map[int]string{}
			for _, number := range o.NodeNumbers() {
				last[number] = o.NameOfNode(number)
			}
		}
		return maps.Clone(last)
	}
}

// addressRetry is the interval at which awaitAddress checks for a network
// address.
const addressRetry = time.Second

// awaitAddress waits while check returns apiserver.ErrNoAddress, as early at
// boot or while a cable is unplugged, and reports that it waits. It leaves
// other errors to the component that needs the address.
func awaitAddress(ctx context.Context, r *processes.Reporter, check func() error) error {
	for waiting := false; ; waiting = true {
		err := check()
		if !errors.Is(err, apiserver.ErrNoAddress) {
			return nil
		}
		if !waiting {
			r.Send(waitsFor(err, time.Now()))
		}
		if !supervise.Pause(ctx, addressRetry) {
			return ctx.Err()
		}
	}
}

// waitsFor returns the message of a process that waits for the network.
func waitsFor(err error, now time.Time) processes.Message {
	m := processes.Message{Stage: err.Error() + "; waiting for the network"}
	m.Components, _ = json.Marshal([]cluster.Component{{ // a Component can always be encoded
		Name: "network", Phase: cluster.Starting, Since: now,
		Conditions: []cluster.Condition{{Name: "NoAddress", Message: err.Error(), Since: now}},
	}})
	return m
}

// openLog returns where this process logs to: the cluster's log file if that is
// its standard error, so that it can be rotated, and standard error otherwise.
func openLog(dataDir string) (io.Writer, error) {
	given, err := os.Stderr.Stat()
	if err != nil {
		return nil, err
	}
	there, err := os.Stat(host.LogFile(dataDir))
	if err != nil || !os.SameFile(given, there) {
		return os.Stderr, nil
	}
	return logging.OpenFile(host.LogFile(dataDir), toStandardOutput)
}

// toStandardOutput redirects standard output and standard error to a file, so
// that it receives the output of a crash.
func toStandardOutput(f *os.File) error {
	return errors.Join(unix.Dup3(int(f.Fd()), 1, 0), unix.Dup3(int(f.Fd()), 2, 0))
}

// part is a control plane or a node: *cluster.Cluster or *cluster.Node.
type part interface {
	Run(context.Context) error
	Ready() <-chan struct{}
	Status() (cluster.Status, <-chan struct{})
}

// statusPeriod is the least time between two reports of components' status.
const statusPeriod = 100 * time.Millisecond

// reportComponents sends the components' status to the supervisor whenever it
// changes. It closes reported when it has sent the status of a part that is ready,
// so that whoever is told that it is ready finds nothing that still starts.
func reportComponents(ctx context.Context, r *processes.Reporter, p part, reported chan<- struct{}) {
	ready := p.Ready()
	for {
		became := false
		select {
		case <-ready:
			became, ready = true, nil
		default:
		}
		status, changed := p.Status()
		if raw, err := json.Marshal(status.Components); err == nil {
			r.Send(processes.Message{Components: raw})
		}
		if became {
			close(reported)
		}
	pause:
		for _, next := range []<-chan struct{}{after(statusPeriod), changed} {
			select {
			case <-ctx.Done():
				return
			case <-ready:
				break pause
			case <-next:
			}
		}
	}
}

// after returns a channel that is closed after a time.
func after(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	return c
}

// bounds are the share of the available memory that a process may use, and the
// adjustment of its OOM score.
type bounds struct {
	share       float64
	oomScoreAdj int
}

// runPart runs a part of a cluster, and sets up the process for it: klog,
// memory limit, OOM score, reports to the supervisor. It calls onReady once the
// part is ready.
func runPart(ctx context.Context, r *processes.Reporter, o cluster.Options, p part, b bounds, onReady func(context.Context)) error {
	levels, err := logging.ParseLevels(o.LogLevels)
	if err != nil {
		return err
	}
	log := logging.New(o.Log, levels)
	if o.Node != nil && o.Node.Number > 1 {
		log = log.Of(o.NameOfNode(o.Node.Number))
	}
	log.CaptureKlog("")
	setOOMScore(ctx, b.oomScoreAdj)
	ctx, cancel := context.WithCancel(ctx)
	var monitors sync.WaitGroup
	defer monitors.Wait()
	defer cancel()
	defer heap.Manage(ctx, b.share)()
	r.Send(processes.Message{MemoryLimit: memory.ProcessLimit()})
	monitors.Go(func() { heap.ReleaseAfterStart(ctx, p.Ready()) })
	reported := make(chan struct{})
	monitors.Go(func() { reportComponents(ctx, r, p, reported) })
	monitors.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-reported:
		}
		onReady(ctx)
	})
	return p.Run(ctx)
}

// setOOMScore sets the adjustment of this process's OOM score. Where the machine
// does not permit it, the process works, and coracle doctor says so.
func setOOMScore(ctx context.Context, adjustment int) {
	if err := oomscore.Set(adjustment); err != nil {
		klog.FromContext(ctx).Info("Failed to ApplyOOMScoreAdj", "err", err)
	}
}

// checkData returns an error if the cluster was ready before and its objects
// are gone, as when its disk was unmounted: an empty cluster must not start in
// its place. The first control plane of a supervisor relies on the record; later
// ones always check, because they replace one that was ready.
func checkData(registry host.Registry, o cluster.Options, first bool) error {
	rec, err := registry.Get(o.Name)
	if err != nil || rec.DataDir != o.DataDir { // a lost record must not stop a working cluster
		rec = host.Record{Occupied: host.Occupied{Name: o.Name, DataDir: o.DataDir}, Settled: true}
	}
	rec.Served = rec.Served || !first
	return rec.CheckData()
}

func runControlPlane(ctx context.Context, r *processes.Reporter, o cluster.Options, first bool) error {
	if err := checkData(host.NewRegistry(host.Root()), o, first); err != nil {
		return err
	}
	if err := apiserver.SetProcess(o.APIServerArgs); err != nil {
		return err
	}
	p, err := cluster.New(o)
	if err != nil {
		return err
	}
	onReady := isReady(r)
	if first {
		// Served is recorded apart from the kubeconfig: a cluster with objects must not
		// be taken for an empty one because another file cannot be written.
		onReady, err = recorded(ctx, r, o.Name, recordServed, func(rec *host.Record) error { return writeContext(ctx, rec, p.AdminKubeconfig(rec.Server)) })
		if err != nil {
			return err
		}
	}
	return runPart(ctx, r, o, p, bounds{heap.ControlPlaneShare, oomscore.ControlPlane}, onReady)
}

// isReady returns a function that reports that the process is ready.
func isReady(r *processes.Reporter) func(context.Context) {
	return func(context.Context) { r.Send(processes.Message{Ready: true}) }
}

// recordStart records which supervisor runs a cluster: the parent of this process.
func recordStart(rec *host.Record) (err error) {
	rec.PID = os.Getppid()
	rec.PIDStart, err = host.StartTime(rec.PID)
	return err
}

// recordServed records that a cluster has been ready, and which supervisor runs it.
func recordServed(rec *host.Record) error {
	rec.Served = true
	return recordStart(rec)
}

// recorded records the supervisor in the record of a cluster, and returns a function
// that reports that clients can use the cluster, makes further changes of the record,
// and then reports that the process is ready.
func recorded(ctx context.Context, r *processes.Reporter, name string, changes ...func(*host.Record) error) (onReady func(context.Context), err error) {
	if err := changeRecord(ctx, name, recordStart); err != nil && !host.NoRoom(err) { // find does not depend on it
		return nil, err
	}
	return func(ctx context.Context) {
		r.Send(processes.Message{Serves: true})
		writeRecord(ctx, r, changes, func(change func(*host.Record) error) error { return changeRecord(ctx, name, change) })
	}, nil
}

// recordRetry is the interval at which failed changes of the record and the
// kubeconfig are retried.
const recordRetry = 5 * time.Second

// writeRecord applies changes to the cluster's record, each by itself, and then
// reports that the control plane is ready. If a file cannot be written, it
// reports that and retries until it succeeds or ctx ends. The cluster works
// without the record.
func writeRecord(ctx context.Context, r *processes.Reporter, changes []func(*host.Record) error, change func(func(*host.Record) error) error) {
	reported := ""
	var ready sync.Once
	for {
		var errs []error
		changes = slices.DeleteFunc(changes, func(c func(*host.Record) error) bool {
			err := change(c)
			errs = append(errs, err)
			return err == nil
		})
		err := errors.Join(errs...)
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != reported {
			klog.FromContext(ctx).Error(err, "Cannot write the cluster's record or context; trying again")
			r.Send(processes.Message{Stage: strings.ReplaceAll(err.Error(), "\n", "; ") + "; the cluster works, and the write will be retried"})
			reported = err.Error()
		}
		ready.Do(func() { r.Send(processes.Message{Ready: true}) })
		if err == nil {
			return
		}
		if !supervise.Pause(ctx, recordRetry) {
			return
		}
	}
}

// writeContext writes the context of a cluster to its kubeconfig. The registry
// must be locked.
func writeContext(ctx context.Context, rec *host.Record, admin *clientcmdapi.Config) error {
	merged, err := host.MergeContext(ctx, rec.Kubeconfig, rec.Name, admin)
	if err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	rec.Merged = rec.Merged.Then(merged)
	return nil
}

// runNode runs a node. With first, which is for a node without a control plane on
// this machine, it records the node.
func runNode(ctx context.Context, r *processes.Reporter, o cluster.Options, first bool) error {
	o.Node.NeighbourPorts = func() []int { return host.NewRegistry(host.Root()).NeighbourPorts(o.Name) }
	n, err := cluster.NewNode(o)
	if err != nil {
		return err
	}
	score, err := component.KubeletOOMScoreAdj(o.KubeletArgsOf(o.Node.Number))
	if err != nil { // of its file, which the kubelet reports
		score = oomscore.Node
	}
	onReady := isReady(r)
	if first {
		if onReady, err = recorded(ctx, r, o.Name, recordServed); err != nil {
			return err
		}
	}
	return runPart(ctx, r, o, n, bounds{heap.NodeShare, score}, onReady)
}

// changeRecord locks the registry and changes the record of a cluster.
func changeRecord(ctx context.Context, name string, change func(*host.Record) error) error {
	registry := host.NewRegistry(host.Root())
	return registry.Locked(ctx, func() error {
		rec, err := registry.Get(name)
		if err != nil {
			return err
		}
		if err := change(&rec); err != nil {
			return err
		}
		return registry.Put(rec)
	})
}
