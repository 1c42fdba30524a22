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
	list, err := m.list(ctx)
	if err != nil {
		return 0, "", err
	}
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
		err := whilePassing(ctx, func() (err error) {
			added, err = m.client.MemberAddAsLearner(ctx, []string{peerURL})
			return err
		})
		if errors.Is(err, rpctypes.ErrTooManyLearners) {
			err = joining(list)
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

// joining returns the error that another one of the members has no vote yet.
func joining(list []*pb.Member) error {
	for _, member := range list {
		if member.IsLearner {
			return fmt.Errorf("another server is joining at %s: wait until it has or, if it never will, remove it on another one with coracle etcdctl member remove %x", strings.Join(member.PeerURLs, ","), member.ID)
		}
	}
	return errors.New("another server is joining: try again")
}

// askAgain is the time between two attempts to read or change the members.
const askAgain = 500 * time.Millisecond

// whilePassing calls ask again while etcd refuses it for a reason that passes, until
// ctx ends: members have been connected for less than five seconds, or the one that was
// asked has no vote yet. Of several, another one is asked next.
func whilePassing(ctx context.Context, ask func() error) error {
	withoutVote := rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)
	for {
		err := ask()
		unhealthy := errors.Is(err, rpctypes.ErrUnhealthy)
		if unhealthy {
			err = fmt.Errorf("%w: the cluster would be left without a majority of members that answer: start them, or first remove one that is lost with coracle etcdctl member remove", err)
		}
		if !unhealthy && !errors.Is(err, withoutVote) {
			return err
		}
		if !supervise.Pause(ctx, askAgain) {
			return err
		}
	}
}

// list returns the members.
func (m *Members) list(ctx context.Context) ([]*pb.Member, error) {
	var answer *clientv3.MemberListResponse
	err := whilePassing(ctx, func() (err error) {
		answer, err = m.client.MemberList(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the members of etcd at %s: %w", strings.Join(m.client.Endpoints(), ","), err)
	}
	return answer.Members, nil
}

// gainVote gives this member a vote if it has none (Members.Add), as soon as it has
// caught up. It tries again until ctx ends, or the member was removed.
func (e *Embedded) gainVote(ctx context.Context) {
	server := e.server.Server
	learner := func() bool { // IsLearner panics after a removal
		own := server.Cluster().Member(server.MemberID())
		return own != nil && own.IsLearner
	}
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for learner() {
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

// keepPeerURL tells all members the peer URL of this one while they know another one, as
// after a start at another address. It tries again until ctx ends, or the member was
// removed.
func (e *Embedded) keepPeerURL(ctx context.Context) {
	server, urls := e.server.Server, []string{e.peerURL}
	for {
		own := server.Cluster().Member(server.MemberID())
		if own == nil || slices.Equal(own.PeerURLs, urls) {
			break
		}
		own.PeerURLs = urls
		bounded, cancel := context.WithTimeout(ctx, answerTimeout)
		_, err := server.UpdateMember(bounded, *own)
		cancel()
		pause := askAgain
		if err != nil && ctx.Err() == nil {
			supervise.Report(ctx, "PeerURL", fmt.Errorf("the members of etcd do not know yet that this one is at %s: %w", e.peerURL, err))
			pause = answerTimeout // each attempt is in the log of all members, also one that they refuse
		}
		if !supervise.Pause(ctx, pause) {
			return
		}
	}
	supervise.Report(ctx, "PeerURL", nil)
}

// Alone reports whether there is no other member, with a vote or without one.
func (e *Embedded) Alone() bool { return len(e.server.Server.Cluster().Members()) == 1 }

// ClientURLs returns the URLs at which clients on other machines reach the members,
// sorted.
func (e *Embedded) ClientURLs() []string {
	return slices.DeleteFunc(e.server.Server.Cluster().ClientURLs(), func(url string) bool { return strings.HasPrefix(url, "unix:") })
}

// Remove removes a member. It is no error if there is none.
func (m *Members) Remove(ctx context.Context, id uint64) error {
	err := whilePassing(ctx, func() error {
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
	list, err := m.list(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, member := range list {
		switch {
		case member.Name == name:
			id = member.ID
		case !member.IsLearner:
			others++
		}
	}
	return id, others, nil
}
