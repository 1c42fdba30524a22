package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/logging"
	"github.com/coracle-io/coracle/internal/memory"
	"github.com/coracle-io/coracle/internal/processes"
	"github.com/coracle-io/coracle/internal/supervise"
)

// errTold is an error that whoever started this process tells.
var errTold = errors.New("told")

// runCommand is what the supervisor starts: one process of a cluster. What the
// process is it reads from the data directory.
func runCommand() *cobra.Command {
	var name, dataDir string
	var first, served bool
	cmd := &cobra.Command{Use: processes.RunCommand, Hidden: true}
	add := func(use string, run func(ctx context.Context, r *processes.Reporter, o cluster.Options) error) *cobra.Command {
		one := &cobra.Command{Use: use, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			r := processes.NewReporter()
			err := asked(runKept(cmd.Context(), r, dataDir, served, run))
			if err == nil {
				return nil
			}
			if r.Send(processes.Message{Failed: inFlags(err), Final: errors.Is(err, cluster.ErrDamaged)}) {
				return errTold
			}
			return err
		}}
		one.Flags().StringVar(&name, "name", "", "name of the cluster")
		one.Flags().StringVar(&dataDir, "data-dir", "", "its data directory")
		one.Flags().BoolVar(&served, "served", false, "wait for a network address, which the cluster had before")
		cmd.AddCommand(one)
		return one
	}
	add(processes.ControlPlane, func(ctx context.Context, r *processes.Reporter, o cluster.Options) error {
		return runControlPlane(ctx, r, o, first)
	}).Flags().BoolVar(&first, "first", false, "record the cluster and write its context to the kubeconfig")
	add(processes.Node, runNode)
	return cmd
}

// runKept runs a part of the cluster in a data directory. One that has served
// before waits while the machine has no network address.
func runKept(ctx context.Context, r *processes.Reporter, dataDir string, served bool, run func(context.Context, *processes.Reporter, cluster.Options) error) error {
	settings, err := host.ReadSettings(dataDir)
	if err != nil {
		return err
	}
	log, err := openLog(dataDir)
	if err != nil {
		return err
	}
	o := clusterOptions(settings)
	o.Log, o.Progress = log, func(stage string) { r.Send(processes.Message{Stage: stage}) }
	if served {
		if err := awaitAddress(ctx, r, func() error { return cluster.CheckAddress(o) }); err != nil {
			return err
		}
	}
	return run(ctx, r, o)
}

// addressAgain is how often a machine without a network address is looked at.
const addressAgain = time.Second

// awaitAddress waits while a check finds no network address, as early at boot or
// while a cable is out, and tells that it does. What else is wrong is for whoever
// needs an address to say.
func awaitAddress(ctx context.Context, r *processes.Reporter, check func() error) error {
	for told := false; ; told = true {
		err := check()
		if !errors.Is(err, apiserver.ErrNoAddress) {
			return nil
		}
		if !told {
			r.Send(waitsFor(err, time.Now()))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(addressAgain):
		}
	}
}

// waitsFor is the message of a process whose components wait for the network.
func waitsFor(err error, now time.Time) processes.Message {
	m := processes.Message{Stage: err.Error() + "; waiting for the network"}
	m.Components, _ = json.Marshal([]supervise.Component{{ // it has no value that JSON does not
		Name: "network", Phase: supervise.Starting, Since: now,
		Conditions: []supervise.Condition{{Name: "NoAddress", Message: err.Error(), Since: now}},
	}})
	return m
}

// openLog is where this process logs to: the cluster's log if that is what it
// was started with as standard error, else standard error itself.
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

// toStandardOutput lets what is printed, as by a crash, go to a file.
func toStandardOutput(f *os.File) error {
	return errors.Join(unix.Dup3(int(f.Fd()), 1, 0), unix.Dup3(int(f.Fd()), 2, 0))
}

// part is a control plane or a node.
type part interface {
	Run(context.Context) error
	Ready() <-chan struct{}
	Status() (supervise.Status, <-chan struct{})
}

// statusPeriod is the time between two reports of how components are, at least.
const statusPeriod = 100 * time.Millisecond

// tellComponents reports how the components are whenever that changes.
func tellComponents(ctx context.Context, r *processes.Reporter, p part) {
	for {
		status, changed := p.Status()
		if raw, err := json.Marshal(status.Components); err == nil {
			r.Send(processes.Message{Components: raw})
		}
		for _, next := range []<-chan struct{}{after(statusPeriod), changed} {
			select {
			case <-ctx.Done():
				return
			case <-next:
			}
		}
	}
}

// after is closed after a time.
func after(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	return c
}

// runPart runs a part of a cluster as all that this process does. begun is
// called once it is ready, before that is told.
func runPart(ctx context.Context, r *processes.Reporter, o cluster.Options, p part, share float64, begun func(context.Context)) error {
	levels, err := logging.ParseLevels(o.LogLevels)
	if err != nil {
		return err
	}
	logging.New(o.Log, levels).CaptureKlog()
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	defer manageMemory(ctx, share)()
	r.Send(processes.Message{MemoryLimit: memory.ProcessLimit()})
	beside.Go(func() { settle(ctx, p.Ready()) })
	beside.Go(func() { tellComponents(ctx, r, p) })
	beside.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-p.Ready():
		}
		begun(ctx)
	})
	return p.Run(ctx)
}

// checkData refuses to begin an empty cluster in place of one that has served,
// as when its disk was unmounted while it ran. A first control plane of this
// supervisor goes by the record, a later one takes the place of one that was
// ready.
func checkData(registry host.Registry, o cluster.Options, first bool) error {
	rec, err := registry.Get(o.Name)
	if err != nil || rec.DataDir != o.DataDir { // a record that is lost ends nothing that works
		rec = host.Record{Name: o.Name, DataDir: o.DataDir, Settled: true}
	}
	rec.Served = rec.Served || !first
	return rec.CheckData()
}

func runControlPlane(ctx context.Context, r *processes.Reporter, o cluster.Options, first bool) error {
	if err := checkData(host.NewRegistry(host.Root), o, first); err != nil {
		return err
	}
	if err := apiserver.SetProcess(o.APIServerArgs); err != nil {
		return err
	}
	p, err := cluster.New(o)
	if err != nil {
		return err
	}
	begun := func(context.Context) { r.Send(processes.Message{Ready: true}) }
	if first {
		started := func(rec *host.Record) (err error) {
			rec.PID = os.Getppid()
			rec.PIDStart, err = host.StartTime(rec.PID)
			return err
		}
		if err := changeRecord(ctx, o.Name, started); err != nil && !host.NoRoom(err) { // find knows the supervisor without
			return err
		}
		begun = func(ctx context.Context) {
			r.Send(processes.Message{Serves: true})
			keepRecord(ctx, r, []func(*host.Record) error{
				// That it serves is one thing and the kubeconfig another: a cluster with
				// objects is never taken for an empty one because a file cannot be written.
				func(rec *host.Record) error {
					rec.Served = true
					return started(rec)
				},
				func(rec *host.Record) error { return writeContext(ctx, rec, p.AdminKubeconfig(rec.Server)) },
			}, func(change func(*host.Record) error) error { return changeRecord(ctx, o.Name, change) })
		}
	}
	return runPart(ctx, r, o, p, controlShare, begun)
}

// recordAgain is how often changing the record and the kubeconfig is tried.
const recordAgain = 5 * time.Second

// keepRecord makes changes of the cluster's record, each by itself, and tells
// then that the control plane is ready. A cluster that works does not end for a
// file that cannot be written: that is told instead, and tried until it
// succeeds or ctx ends.
func keepRecord(ctx context.Context, r *processes.Reporter, changes []func(*host.Record) error, change func(func(*host.Record) error) error) {
	told := ""
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
		if err != nil && err.Error() != told {
			klog.FromContext(ctx).Error(err, "Cannot write the cluster's record or context; trying again")
			r.Send(processes.Message{Stage: strings.ReplaceAll(err.Error(), "\n", "; ") + "; the cluster works, and this is tried again"})
			told = err.Error()
		}
		ready.Do(func() { r.Send(processes.Message{Ready: true}) })
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(recordAgain):
		}
	}
}

// writeContext writes the context of a cluster to its kubeconfig. The registry
// is locked.
func writeContext(ctx context.Context, rec *host.Record, admin *clientcmdapi.Config) error {
	merged, err := host.MergeContext(ctx, rec.Kubeconfig, rec.Name, admin)
	if err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	rec.Merged = rec.Merged.Then(merged)
	return nil
}

func runNode(ctx context.Context, r *processes.Reporter, o cluster.Options) error {
	n, err := cluster.NewNode(o)
	if err != nil {
		return err
	}
	return runPart(ctx, r, o, n, nodeShare, func(context.Context) { r.Send(processes.Message{Ready: true}) })
}

// changeRecord changes the record of a cluster.
func changeRecord(ctx context.Context, name string, change func(*host.Record) error) error {
	registry := host.NewRegistry(host.Root)
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
