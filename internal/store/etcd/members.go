package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Members changes which members an etcd cluster has, as a client of one of them.
type Members struct {
	client *clientv3.Client
}

// DialMembers connects to etcd. It does not wait for a connection. The caller must
// call Close.
func DialMembers(e Endpoints, logger klog.Logger) (*Members, error) {
	external, err := Dial(e, logger)
	if err != nil {
		return nil, err
	}
	return &Members{external.client}, nil
}

// Close closes the connection.
func (m *Members) Close() error { return m.client.Close() }

// Add adds a member without a vote (a learner) that others reach at a peer URL, and
// returns its ID and its Config.InitialCluster. An Embedded of that configuration, with
// Config.Existing, gains its vote by itself. A learner that is there at that URL and has
// never started is used again, one that has started is replaced: its data are gone. A
// member with a vote is an error, as is a member of that name elsewhere.
func (m *Members) Add(ctx context.Context, name, peerURL string) (id uint64, initialCluster string, err error) {
	answer, err := m.client.MemberList(ctx)
	if err != nil {
		return 0, "", fmt.Errorf("list the members of etcd: %w", err)
	}
	list := answer.Members
	for _, member := range list {
		there := slices.Contains(member.PeerURLs, peerURL)
		switch {
		case there && member.IsLearner && member.Name == "":
			id = member.ID
		case there && member.IsLearner:
			if err := m.Remove(ctx, member.ID); err != nil {
				return 0, "", err
			}
		case there || member.Name == name:
			return 0, "", fmt.Errorf("etcd has a member %s at %s: choose another name or, if that server is gone, remove it on another one with coracle etcdctl member remove %x", member.Name, strings.Join(member.PeerURLs, ","), member.ID)
		}
	}
	if id == 0 {
		var added *clientv3.MemberAddResponse
		err := whenHealthy(ctx, func() (err error) {
			added, err = m.client.MemberAddAsLearner(ctx, []string{peerURL})
			return err
		})
		if errors.Is(err, rpctypes.ErrTooManyLearners) {
			err = errors.New("another server is joining: wait until it has or, if it never will, remove it with coracle etcdctl member remove")
		}
		if err != nil {
			return 0, "", fmt.Errorf("add a member at %s to etcd: %w", peerURL, err)
		}
		id, list = added.Member.ID, added.Members
	}
	return id, initialClusterOf(list, id, name), nil
}

// initialClusterOf returns the members as Config.InitialCluster has them, for the one
// with an ID, which is called name. Others that have never started have no name yet.
func initialClusterOf(list []*pb.Member, id uint64, name string) string {
	var all []string
	for _, member := range list {
		called := cmp.Or(member.Name, strconv.FormatUint(member.ID, 16))
		if member.ID == id {
			called = name
		}
		for _, peerURL := range member.PeerURLs {
			all = append(all, called+"="+peerURL)
		}
	}
	return strings.Join(all, ",")
}

// changeAgain is the time between two attempts to change the members.
const changeAgain = 500 * time.Millisecond

// whenHealthy calls change until etcd does not refuse it any more because members have
// been connected for less than five seconds, or ctx ends.
func whenHealthy(ctx context.Context, change func() error) error {
	for {
		err := change()
		if !errors.Is(err, rpctypes.ErrUnhealthy) {
			return err
		}
		select {
		case <-time.After(changeAgain):
		case <-ctx.Done():
			return err
		}
	}
}

// gainVote gives this member a vote if it has none (Members.Add), as soon as it has
// caught up. It tries again until ctx ends.
func (e *Embedded) gainVote(ctx context.Context) {
	server := e.server.Server
	again := time.NewTicker(changeAgain)
	defer again.Stop()
	for server.IsLearner() {
		bounded, cancel := context.WithTimeout(ctx, answerTimeout)
		_, err := server.PromoteMember(bounded, uint64(server.MemberID()))
		cancel()
		if err != nil {
			supervise.Report(ctx, "Learner", fmt.Errorf("this member of etcd has no vote yet: %w", err))
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
	supervise.Report(ctx, "Learner", nil)
}

// Remove removes a member. It is no error if there is none.
func (m *Members) Remove(ctx context.Context, id uint64) error {
	err := whenHealthy(ctx, func() error {
		_, err := m.client.MemberRemove(ctx, id)
		return err
	})
	if err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
		return fmt.Errorf("remove member %x from etcd: %w", id, err)
	}
	return nil
}

// Find returns the ID of the member with a name, and how many others have a vote. The
// ID is 0 if there is none.
func (m *Members) Find(ctx context.Context, name string) (id uint64, others int, err error) {
	answer, err := m.client.MemberList(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("list the members of etcd: %w", err)
	}
	for _, member := range answer.Members {
		switch {
		case member.Name == name:
			id = member.ID
		case !member.IsLearner:
			others++
		}
	}
	return id, others, nil
}
