package etcd

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/supervise"
)

// memberEnv, in the environment, makes this test binary the other member:
// directory, URL and members.
const memberEnv = "CORACLE_TEST_MEMBER"

// A member that waits for the others says so, before it is ready and later.
func TestNoLeader(t *testing.T) {
	if given := strings.Fields(os.Getenv(memberEnv)); len(given) == 3 {
		t.Fatal(member(t.Context(), Config{Dir: given[0], Name: "b", PeerURL: given[1], InitialCluster: given[2]}))
	}
	var urls, members []string
	for _, name := range []string{"a", "b"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		urls = append(urls, "http://"+l.Addr().String())
		members = append(members, name+"=http://"+l.Addr().String())
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	group := supervise.NewGroup(supervise.Options{})
	defer group.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all, dir := strings.Join(members, ","), t.TempDir()
	group.Go(ctx, "a", func(ctx context.Context) error {
		return member(ctx, Config{Dir: dir, Name: "a", PeerURL: urls[0], InitialCluster: all})
	})
	want := strings.Join(members, " ")
	awaitCondition(t, group, want)
	other := exec.Command(os.Args[0], "-test.run=^TestNoLeader$", "-test.timeout=1m")
	other.Env = append(os.Environ(), memberEnv+"="+strings.Join([]string{t.TempDir(), urls[1], all}, " "))
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Wait() }()
	defer func() { _ = other.Process.Kill() }()
	awaitCondition(t, group, "")
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, group, want)
}

func member(ctx context.Context, config Config) error {
	e, err := Embed(ctx, config)
	if err != nil {
		return err
	}
	return e.Run(ctx)
}

// awaitCondition waits until member a has a condition with a text, or if that
// is "", none.
func awaitCondition(t *testing.T, group *supervise.Group, want string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		status, changed := group.Status()
		a := status.Components[0]
		if want == "" && len(a.Conditions) == 0 || want != "" && len(a.Conditions) == 1 && strings.Contains(a.Conditions[0].Message, want) {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("no %q in %+v", want, a)
		}
	}
}

// An etcd that never becomes ready ends when it is told to.
func TestAnEtcdThatElectsEndsAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = Embed(ctx, Config{Dir: t.TempDir(), Name: "a", PeerURL: url, InitialCluster: "a=" + url + ",b=http://127.0.0.1:1"})
	if err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}
