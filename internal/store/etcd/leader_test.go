package etcd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/freeport"
	"github.com/coracle-io/coracle/internal/supervise"
)

// memberEnv is an environment variable. If it is set, this test binary runs the
// other member; the value contains its directory, URL and members.
const memberEnv = "CORACLE_TEST_MEMBER"

// TestNoLeader checks that a member that waits for the others reports it, both
// before it is ready and later.
func TestNoLeader(t *testing.T) {
	if given := strings.Fields(os.Getenv(memberEnv)); len(given) == 3 {
		t.Fatal(member(t.Context(), Config{Dir: given[0], Name: "b", PeerURL: given[1], InitialCluster: given[2]}))
	}
	t.Parallel()
	var urls, members []string
	for _, name := range []string{"a", "b"} {
		url := fmt.Sprintf("http://127.0.0.1:%d", freeport.For(t))
		urls = append(urls, url)
		members = append(members, name+"="+url)
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
	other := exec.Command(os.Args[0], "-test.run=^TestNoLeader$", "-test.timeout=5m")
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

// awaitCondition waits until member a has a condition whose message contains a
// text, or no condition if the text is "".
func awaitCondition(t *testing.T, group *supervise.Group, want string) {
	t.Helper()
	late := time.After(2 * time.Minute)
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

// TestCancelDuringElection checks that Embed returns when its context is done
// while there is no leader.
func TestCancelDuringElection(t *testing.T) {
	t.Parallel()
	url := fmt.Sprintf("http://127.0.0.1:%d", freeport.For(t))
	config := Config{Dir: t.TempDir(), Name: "a", PeerURL: url, InitialCluster: "a=" + url + ",b=http://127.0.0.1:1"}
	group := supervise.NewGroup(supervise.Options{})
	defer group.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	returned := make(chan error, 1)
	group.Go(ctx, "a", func(ctx context.Context) error {
		_, err := Embed(ctx, config)
		select {
		case returned <- err:
		default: // it was started again
		}
		return err
	})
	awaitCondition(t, group, "b=http://127.0.0.1:1")
	cancel()
	select {
	case err := <-returned:
		if err == nil {
			t.Error("Embed returns a member without a leader")
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("Embed waits for the other member")
	}
}
