package etcd

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/freeport"
)

// TestAMemberJoinsAndLeaves adds a member to a cluster of one, which goes on without
// it, and removes it.
func TestAMemberJoinsAndLeaves(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	url := func() string { return fmt.Sprintf("http://127.0.0.1:%d", freeport.For(t)) }
	urlA, urlB := url(), url()
	embedded := func(config Config) (e *Embedded, ended chan error) {
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
	dir := t.TempDir()
	a, endedA := embedded(Config{Dir: dir, Name: "a", PeerURL: urlA, InitialCluster: "a=" + urlA})
	members, err := DialMembers(Endpoints{URLs: []string{"unix://" + filepath.Join(dir, "etcd.sock")}}, klog.FromContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = members.Close() }()
	write := func(key string) {
		t.Helper()
		if _, err := a.Create(ctx, key, []byte("v"), 0); err != nil {
			t.Error(err)
		}
	}
	id, initial, err := members.Add(ctx, "b", urlB)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]bool{"a=" + urlA: true, "b=" + urlB: true}; len(strings.Split(initial, ",")) != 2 || !want[strings.Split(initial, ",")[0]] || !want[strings.Split(initial, ",")[1]] {
		t.Errorf("the members are %s", initial)
	}
	write("/before") // by a majority without the new one
	if again, _, err := members.Add(ctx, "b", urlB); err != nil || again != id {
		t.Errorf("added again: %x, %v; want %x", again, err, id)
	}
	if _, _, err := members.Add(ctx, "c", url()); err == nil || !strings.Contains(err.Error(), "another server is joining") {
		t.Errorf("a third member meanwhile: %v", err)
	}
	if _, _, err := members.Add(ctx, "a", url()); err == nil || !strings.Contains(err.Error(), "etcd has a member a at "+urlA) {
		t.Errorf("another member called a: %v", err)
	}
	b, endedB := embedded(Config{Dir: t.TempDir(), Name: "b", PeerURL: urlB, InitialCluster: initial, Existing: true})
	if kv, err := b.Get(ctx, "/before"); err != nil || string(kv.Value) != "v" {
		t.Errorf("without a vote it reads %q, %v", kv.Value, err)
	}
	if _, err := b.Create(ctx, "/by-b", []byte("v"), 0); err != nil {
		t.Errorf("without a vote it writes: %v", err)
	}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for b.server.Server.IsLearner() { // until Run has given it a vote
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatal("the new member gains no vote")
		}
	}
	if _, _, err := members.Add(ctx, "b", urlB); err == nil || !strings.Contains(err.Error(), "etcd has a member b at "+urlB) {
		t.Errorf("added again with a vote: %v", err)
	}
	if found, others, err := members.Find(ctx, "b"); err != nil || found != id || others != 1 {
		t.Errorf("found %x and %d others, %v", found, others, err)
	}
	for range 2 {
		if err := members.Remove(ctx, id); err != nil {
			t.Error(err)
		}
	}
	select {
	case err := <-endedB:
		if err == nil {
			t.Error("a member that was removed ends without a reason")
		}
	case <-ctx.Done():
		t.Fatal("a member that was removed goes on")
	}
	write("/after")
	if found, others, err := members.Find(ctx, "b"); err != nil || found != 0 || others != 1 {
		t.Errorf("after its removal: found %x and %d others, %v", found, others, err)
	}
	select {
	case err := <-endedA:
		t.Errorf("the first member has ended: %v", err)
	default:
	}
}

func TestInitialCluster(t *testing.T) {
	list := []*pb.Member{{ID: 1, Name: "a", PeerURLs: []string{"https://a:1", "https://a:2"}}, {ID: 0xabc, PeerURLs: []string{"https://c:1"}}, {ID: 2, PeerURLs: []string{"https://b:1"}}}
	if got, want := initialClusterOf(list, 2, "b"), "a=https://a:1,a=https://a:2,abc=https://c:1,b=https://b:1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
