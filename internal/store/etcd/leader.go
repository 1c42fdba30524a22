package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// leaderEvery is how often it is looked whether there is a leader.
const leaderEvery = time.Second

// leaderless says that there is no leader, and whom that depends on.
func (e *Embedded) leaderless() error {
	if e.server.Server.Leader() != 0 {
		return nil
	}
	var members []string
	for _, m := range e.server.Server.Cluster().Members() {
		members = append(members, m.Name+"="+strings.Join(m.PeerURLs, ","))
	}
	slices.Sort(members)
	return fmt.Errorf("etcd has no leader and answers nothing: it waits for more than half of its members (%s)", strings.Join(members, " "))
}

// unready says why an etcd that is not ready yet is not.
func (e *Embedded) unready() error {
	if err := e.leaderless(); err != nil {
		return err
	}
	return errors.New("etcd has a leader, but is not ready: it has not caught up with the log")
}

// reportLeader reports until ctx ends or ready is closed what look says of the
// leader.
func reportLeader(ctx context.Context, ready <-chan struct{}, look func() error) {
	const condition = "NoLeader"
	log := klog.FromContext(ctx)
	ticker := time.NewTicker(leaderEvery)
	defer ticker.Stop()
	shown := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ready:
			supervise.Report(ctx, condition, nil)
			return
		case <-ticker.C:
		}
		err, message := look(), ""
		if err != nil {
			message = err.Error()
		}
		if message == shown {
			continue
		}
		shown = message
		supervise.Report(ctx, condition, err)
		if err != nil {
			log.Error(err, "etcd does not answer, waiting")
		} else {
			log.Info("etcd has a leader again")
		}
	}
}
