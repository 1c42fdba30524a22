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

// supervisor is the command line of the process that runs the cluster.
func (p *prepared) supervisor() processes.Arguments {
	return processes.Arguments{
		Name: p.settings.Name, DataDir: p.settings.DataDir, RunDir: host.RunDir(p.settings.Name), Node: p.settings.Nodes > 0, Served: p.served,
	}
}

// endPatience is how long what a killed supervisor left may take to end.
const endPatience = 10 * time.Second

// makeReady makes what the processes of the cluster need to start.
func (p *prepared) makeReady() error {
	if err := os.MkdirAll(host.RunDir(p.settings.Name), 0o711); err != nil {
		return err
	}
	if err := cluster.Prepare(clusterOptions(p.settings)); !p.startsAnyway(err) {
		return err
	}
	return nil
}

// runHere makes this process the supervisor, which keeps the lock of the data
// directory. It returns only if it cannot.
func (p *prepared) runHere() error {
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

// undo is a first start that failed.
type undo struct {
	Record host.Record
	Claim  *host.Claim
}

// abandon takes away what a first start that failed has made, even if nobody
// waits for that any more.
func abandon(ctx context.Context, rec host.Record, claim *host.Claim) error {
	ctx = context.WithoutCancel(ctx)
	err := changeRecord(ctx, rec.Name, func(now *host.Record) error {
		now.PID, now.PIDStart = 0, 0 // the cluster runs no more, although this process may be the one that ran it
		return nil
	})
	return errors.Join(err, takeAway(ctx, host.NewRegistry(host.Root), rec, claim.Abandon, claim.Vacate))
}

const undoCommandName = "undo"

// undoCommand takes away what a first start in the foreground has made, for
// it has failed. The supervisor becomes this command.
func undoCommand() *cobra.Command {
	var lockFD int
	cmd := &cobra.Command{Use: undoCommandName + " REASON", Hidden: true, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		failure := errors.New(args[0])
		var u undo
		if err := json.Unmarshal([]byte(os.Getenv(processes.FailedEnv)), &u); err != nil {
			return errors.Join(failure, err)
		}
		if lockFD > 0 { // held until this process ends, and not by what it starts
			unix.CloseOnExec(lockFD)
		}
		return errors.Join(failure, abandon(cmd.Context(), u.Record, u.Claim))
	}}
	cmd.Flags().IntVar(&lockFD, "lock-fd", 0, "open file whose lock is to be kept")
	return cmd
}
