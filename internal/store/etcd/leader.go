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

// leaderInterval is the time between two checks for a leader.
const leaderInterval = time.Second

// checkLeader returns an error with the members of the cluster if there is no
// leader, and otherwise nil.
func (e *Embedded) checkLeader() error {
	if e.server.Server.Leader() != 0 {
		return nil
	}
	var members []string
	for _, m := range e.server.Server.Cluster().Members() {
		members = append(members, m.Name+"="+strings.Join(m.PeerURLs, ","))
	}
	slices.Sort(members)
	return fmt.Errorf("etcd has no leader and cannot serve requests: it waits for a majority of its members (%s)", strings.Join(members, " "))
}

// checkReady returns the reason why etcd is not ready. It must only be called while
// etcd is not ready.
func (e *Embedded) checkReady() error {
	if err := e.checkLeader(); err != nil {
		return err
	}
	return errors.New("etcd has a leader, but is not ready: it has not applied the whole log yet")
}

// reportLeader reports the error of check as the condition NoLeader and logs its
// changes, until ctx is done or ready is closed.
func reportLeader(ctx context.Context, ready <-chan struct{}, check func() error) {
	const condition = "NoLeader"
	log := klog.FromContext(ctx)
	ticker := time.NewTicker(leaderInterval)
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
		err, message := check(), ""
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
