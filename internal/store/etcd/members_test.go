package etcd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/freeport"
	"github.com/coracle-io/coracle/internal/store"
)

// started starts a member, which ends with the test. ended receives why it has ended
// before, and is closed then.
func started(ctx context.Context, t *testing.T, config Config) (e *Embedded, ended chan error) {
	t.Helper()
	e, err := Embed(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() {
		ended <- e.Run(running)
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		for range ended { // until it is closed
		}
	})
	return e, ended
}

// refuses checks that a member cannot be added, for a reason that has a text.
func refuses(ctx context.Context, t *testing.T, members *Members, name, peerURL, reason string) {
	t.Helper()
	if _, _, err := members.Add(ctx, name, peerURL); err == nil || !strings.Contains(err.Error(), reason) {
		t.Errorf("member %s at %s: %v, want %s", name, peerURL, err, reason)
	}
}

// TestAMemberJoinsAndLeaves adds a member to a cluster of one, which goes on without
// it, and removes it.
func TestAMemberJoinsAndLeaves(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	url := func() string { return fmt.Sprintf("http://127.0.0.1:%d", freeport.For(t)) }
	urlA, urlB, clients := url(), url(), url()
	dir := t.TempDir()
	a, endedA := started(ctx, t, Config{Dir: dir, Name: "a", PeerURL: urlA, InitialCluster: "a=" + urlA, ClientURL: clients})
	members, err := DialMembers(Endpoints{URLs: []string{"unix://" + filepath.Join(dir, "etcd.sock")}}, klog.FromContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = members.Close() }()
	write := func(e *Embedded, key string) {
		t.Helper()
		for { // members whose disks stop for a second elect another leader, and may lose a write
			_, err := e.Create(ctx, key, []byte("v"), 0)
			if errors.Is(err, store.ErrUnavailable) {
				select {
				case <-time.After(50 * time.Millisecond):
					continue
				case <-ctx.Done():
				}
			}
			if err != nil && !errors.Is(err, store.ErrExists) {
				t.Errorf("write %s: %v", key, err)
			}
			return
		}
	}
	id, initial, err := members.Add(ctx, "b", urlB)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(initial, ",")
	slices.Sort(all)
	if want := []string{"a=" + urlA, "b=" + urlB}; !slices.Equal(all, want) {
		t.Errorf("the members are %s", initial)
	}
	write(a, "/before") // by a majority without the new one
	if again, _, err := members.Add(ctx, "b", urlB); err != nil || again != id {
		t.Errorf("added again: %x, %v; want %x", again, err, id)
	}
	refuses(ctx, t, members, "c", url(), fmt.Sprintf("another server is joining at %s: wait until it has or, if it never will, remove it on another one with coracle etcdctl member remove %x", urlB, id))
	refuses(ctx, t, members, "a", url(), "etcd has a member a at "+urlA)
	b, endedB := started(ctx, t, Config{Dir: t.TempDir(), Name: "b", PeerURL: urlB, InitialCluster: initial, Existing: true})
	if kv, err := b.Get(ctx, "/before"); err != nil || string(kv.Value) != "v" {
		t.Errorf("without a vote it reads %q, %v", kv.Value, err)
	}
	write(b, "/by-b") // without a vote
	awaitVote(ctx, t, b)
	refuses(ctx, t, members, "b", urlB, "etcd has a member b at "+urlB)
	if got := a.ClientURLs(); !slices.Equal(got, []string{clients}) {
		t.Errorf("the URLs for clients are %q", got)
	}
	if found, others, err := members.Find(ctx, "b"); err != nil || found != id || others != 1 {
		t.Errorf("found %x and %d others, %v", found, others, err)
	}
	for range 2 {
		if err := members.Remove(ctx, id); err != nil {
			t.Error(err)
		}
	}
	if err := <-endedB; err == nil || !strings.Contains(err.Error(), "remove it here with coracle down") {
		t.Errorf("a member that was removed ends with %v", err)
	}
	write(a, "/after")
	if found, others, err := members.Find(ctx, "b"); err != nil || found != 0 || others != 1 {
		t.Errorf("after its removal: found %x and %d others, %v", found, others, err)
	}
	select {
	case err := <-endedA:
		t.Errorf("the first member has ended: %v", err)
	default:
	}
}

// TestAMemberMoves starts a member again at other URLs, which all members know then.
func TestAMemberMoves(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	url := func() string { return fmt.Sprintf("http://127.0.0.1:%d", freeport.For(t)) }
	former, latter, clients, dir := url(), url(), url(), t.TempDir()
	e, err := Embed(ctx, Config{Dir: dir, Name: "a", PeerURL: former, InitialCluster: "a=" + former, ClientURL: url()})
	if err != nil {
		t.Fatal(err)
	}
	_, created := e.Create(ctx, "/kept", []byte("v"), 0)
	ended, end := context.WithCancel(ctx)
	end()
	if err := errors.Join(created, e.Run(ended)); err != nil {
		t.Fatal(err)
	}
	e, _ = started(ctx, t, Config{Dir: dir, Name: "a", PeerURL: latter, InitialCluster: "a=" + latter, ClientURL: clients})
	if kv, err := e.Get(ctx, "/kept"); err != nil || string(kv.Value) != "v" {
		t.Errorf("after the move it reads %q, %v", kv.Value, err)
	}
	members, err := DialMembers(Endpoints{URLs: []string{"unix://" + filepath.Join(dir, "etcd.sock")}}, klog.FromContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = members.Close() }()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		list, err := members.list(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 && slices.Equal(list[0].PeerURLs, []string{latter}) && slices.Equal(list[0].ClientURLs, []string{clients}) {
			break
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("the members are %v, want one at %s and %s", list, latter, clients)
		}
	}
	if !e.Alone() {
		t.Error("it is not alone")
	}
	if _, _, err := members.Add(ctx, "b", url()); err != nil {
		t.Fatal(err)
	}
	if e.Alone() {
		t.Error("it is alone with a member that has no vote")
	}
}

// awaitVote waits until a member has a vote.
func awaitVote(ctx context.Context, t *testing.T, e *Embedded) {
	t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for e.server.Server.IsLearner() {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatal("the new member gains no vote")
		}
	}
}

// What etcd refuses for a reason that passes is asked again, and said if it does not
// pass.
func TestAskedWhilePassing(t *testing.T) {
	t.Parallel()
	asked := 0
	answers := []error{rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner), rpctypes.ErrUnhealthy, rpctypes.ErrMemberNotFound}
	err := whilePassing(t.Context(), func() error {
		asked++
		return answers[asked-1]
	})
	if !errors.Is(err, rpctypes.ErrMemberNotFound) || asked != len(answers) {
		t.Errorf("asked %d times: %v", asked, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err = whilePassing(ended, func() error { return rpctypes.ErrUnhealthy })
	if !errors.Is(err, rpctypes.ErrUnhealthy) || !strings.Contains(err.Error(), "coracle etcdctl member remove") {
		t.Errorf("what does not pass: %v", err)
	}
}

// Only members with certificates of an authority of etcd alone may connect from any
// address.
func TestPeersAnywhere(t *testing.T) {
	for _, anywhere := range []bool{false, true} {
		dir := t.TempDir()
		config := Config{Dir: dir, PeerURL: "https://192.0.2.1:1", PeerTLS: TLSFiles{CA: "ca", Cert: "cert", Key: "key"}, PeersAnywhere: anywhere}
		made, err := config.embed(klog.Background(), newFatal())
		if err != nil || made.PeerTLSInfo.SkipClientSANVerify != anywhere || !made.PeerTLSInfo.ClientCertAuth {
			t.Errorf("%v: %+v, %v", anywhere, made, err)
		}
	}
}

func TestInitialCluster(t *testing.T) {
	list := []*pb.Member{{ID: 1, Name: "a", PeerURLs: []string{"https://a:1", "https://a:2"}}, {ID: 0xabc, PeerURLs: []string{"https://c:1"}}, {ID: 2, PeerURLs: []string{"https://b:1"}}}
	if got, want := initialClusterOf(list, 2, "b"), "a=https://a:1,a=https://a:2,abc=https://c:1,b=https://b:1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
