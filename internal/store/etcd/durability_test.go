package etcd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/store/etcd"
)

// victimDir is an environment variable. If it is set, this test binary is the
// process to be killed, with the value as its data directory.
const victimDir = "CORACLE_TEST_VICTIM_DIR"

// TestAcknowledgedWritesSurviveKill kills a process during its writes and checks
// that all acknowledged writes are stored.
func TestAcknowledgedWritesSurviveKill(t *testing.T) {
	if dir := os.Getenv(victimDir); dir != "" {
		victim(dir)
	}
	dir := shortDir(t)
	for round := range 3 {
		acknowledged := killDuringWrites(t, dir, fmt.Sprintf("round%d", round))
		e, err := etcd.Embed(context.Background(), etcd.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range acknowledged {
			if kv, err := e.Get(t.Context(), key); err != nil || string(kv.Value) != "value of "+key {
				t.Errorf("%s was acknowledged: %q, %v", key, kv.Value, err)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
	}
}

func killDuringWrites(t *testing.T, dir, name string) (acknowledged []string) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestAcknowledgedWritesSurviveKill$")
	cmd.Env = append(os.Environ(), victimDir+"="+dir, "CORACLE_TEST_ROUND="+name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if key, ok := strings.CutPrefix(lines.Text(), "done "); ok {
			acknowledged = append(acknowledged, key)
		}
		if len(acknowledged) == 500 {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
	if len(acknowledged) < 500 {
		t.Fatalf("only %d writes were acknowledged", len(acknowledged))
	}
	return acknowledged
}

// victim writes from several goroutines until it is killed.
func victim(dir string) {
	e, err := etcd.Embed(context.Background(), etcd.Config{Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var wg sync.WaitGroup
	for writer := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("/registry/%s/%d/%d", os.Getenv("CORACLE_TEST_ROUND"), writer, i)
				if _, err := e.Create(context.Background(), key, []byte("value of "+key), 0); err == nil {
					fmt.Println("done " + key)
				}
			}
		})
	}
	wg.Wait()
}

// TestFullDatabaseRecovers updates a key until its history exceeds the quota,
// and waits until the store accepts writes again.
func TestFullDatabaseRecovers(t *testing.T) {
	e := embedded(t, etcd.Config{Dir: shortDir(t), QuotaBytes: 16 << 20})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	value := make([]byte, 1<<20)
	revision, err := e.Create(ctx, "/registry/big", value, 0)
	for err == nil {
		revision, err = next(e, ctx, value, revision)
	}
	if !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("full database: %v", err)
	}
	for {
		kv, err := e.Get(ctx, "/registry/big") // a write that was not acknowledged may have been made
		if err != nil {
			t.Fatalf("read from a full database: %v", err)
		}
		if _, err = next(e, ctx, value, kv.Revision); err == nil {
			return
		}
		if !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("while it recovers: %v", err)
		}
	}
}

func next(s store.Store, ctx context.Context, value []byte, revision int64) (int64, error) {
	return s.Update(ctx, "/registry/big", value, revision, 0)
}
