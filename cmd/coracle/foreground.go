package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/processes"
)

// supervisor returns the command line of the process that runs the cluster.
func (p *prepared) supervisor() processes.Arguments {
	return processes.Arguments{
		Name: p.settings.Options.Name, DataDir: p.settings.Options.DataDir, RunDir: p.settings.RunDirectory(), Nodes: nodesToRun(p.settings),
		Joined: p.settings.Options.Node.Joined != nil, Served: p.served,
	}
}

// endTimeout is how long processes left by a killed supervisor may take to end.
const endTimeout = 10 * time.Second

// makeReady creates what the cluster's processes need to start.
func (p *prepared) makeReady() error {
	if err := host.MakeRunDir(p.settings.RunDirectory()); err != nil {
		return fmt.Errorf("make the directory of the sockets: %w", err)
	}
	if err := p.warnInstead(host.MakeManifests(p.settings.Options.DataDir)); err != nil {
		return err
	}
	return p.warnInstead(cluster.Prepare(p.settings.ClusterOptions()))
}

// runInForeground replaces this process with the supervisor, which inherits the
// lock of the data directory. It returns only if that fails.
func (p *prepared) runInForeground() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	lock := p.claim.Lock.File().Fd()
	if _, err := unix.FcntlInt(lock, unix.F_SETFD, 0); err != nil {
		return fmt.Errorf("keep the lock of %s: %w", p.claim.Dir, err)
	}
	arguments, environment := p.supervisor(), os.Environ()
	arguments.LockFD = int(lock)
	if p.claim.New() {
		undo, err := json.Marshal(undo{Record: p.record, Claim: p.claim})
		if err != nil {
			return err
		}
		arguments.Failed = []string{undoCommandName}
		environment = append(environment, processes.FailedEnv+"="+string(undo))
	}
	err = syscall.Exec(exe, append([]string{os.Args[0]}, arguments.List()...), environment)
	return fmt.Errorf("start the cluster: %w", err)
}

// undo describes a first start, so that it can be rolled back.
type undo struct {
	Record host.Record
	Claim  *host.Claim
}

// rollBack removes what a first start that failed has created, even if ctx has
// ended.
func rollBack(ctx context.Context, rec host.Record, claim *host.Claim) error {
	ctx = context.WithoutCancel(ctx)
	err := changeRecord(ctx, rec.Name, func(now *host.Record) error {
		now.PID, now.PIDStart = 0, 0 // the process may be this one, which runs it no more
		return nil
	})
	return errors.Join(err, removeCluster(ctx, host.NewRegistry(host.Root()), rec, claim.Abandon, claim.Vacate))
}

const undoCommandName = "undo"

// undoCommand rolls back a first start in the foreground that has failed, except
// that of a member of an etcd cluster. The supervisor replaces itself with this
// command.
func undoCommand() *cobra.Command {
	var lockFD int
	cmd := &cobra.Command{Use: undoCommandName + " REASON", Hidden: true, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		failure := errors.New(args[0])
		var u undo
		if err := json.Unmarshal([]byte(os.Getenv(processes.FailedEnv)), &u); err != nil {
			return errors.Join(failure, err)
		}
		if lockFD > 0 { // keep the lock until this process ends, but not in its children
			unix.CloseOnExec(lockFD)
		}
		if s, err := host.ReadSettings(u.Record.DataDir); err == nil && s.HoldsMember() {
			return failure
		}
		return errors.Join(failure, rollBack(cmd.Context(), u.Record, u.Claim))
	}}
	cmd.Flags().IntVar(&lockFD, "lock-fd", 0, "file descriptor of the lock to keep")
	return cmd
}
