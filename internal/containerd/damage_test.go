package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A database is damaged if its beginning or its end is gone, or all of it although
// there are snapshots. A new one is not.
func TestCheckDatabase(t *testing.T) {
	garbage := bytes.Repeat([]byte{0xa5}, 4*os.Getpagesize())
	for name, test := range map[string]struct {
		spoil   func(path string) error
		used    bool
		damaged bool
	}{
		"intact":         {func(string) error { return nil }, true, false},
		"not made yet":   {os.Remove, false, false},
		"missing":        {os.Remove, true, true},
		"just made":      {func(path string) error { return os.Truncate(path, 0) }, false, false},
		"empty":          {func(path string) error { return os.Truncate(path, 0) }, true, true},
		"without an end": {func(path string) error { return os.Truncate(path, int64(3*os.Getpagesize())) }, true, true},
		"something else": {func(path string) error { return os.WriteFile(path, garbage, 0o600) }, true, true},
		"not readable":   {func(path string) error { return errors.Join(os.Remove(path), os.Symlink(path, path)) }, true, false},
	} {
		path := filepath.Join(t.TempDir(), "meta.db")
		fillDatabase(t, path)
		if err := test.spoil(path); err != nil {
			t.Fatal(err)
		}
		if err := checkDatabase(path, test.used); errors.Is(err, errDamaged) != test.damaged {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// fillDatabase makes a database of several pages.
func fillDatabase(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		for i := 0; err == nil && i < 1000; i++ {
			err = b.Put(fmt.Appendf(nil, "key %d", i), make([]byte, 100))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCrashedInDatabase(t *testing.T) {
	const before = "level=info msg=\"loading plugin\"\n"
	for name, test := range map[string]struct {
		log  string
		want bool
	}{
		"no crash": {"level=warning msg=\"failed to load plugin\" error=\"go.etcd.io/bbolt: timeout\"\n", false},
		"a page": {"panic: freepages: failed to get all reachable pages (page 7: multiple references)\n\ngoroutine 36 [running]:\n" +
			"go.etcd.io/bbolt.(*DB).freepages.func2()\n\tgo.etcd.io/bbolt@v1.5.0/db.go:1258 +0x9a\n", true},
		"a fault": {"unexpected fault address 0x7f0000000000\nfatal error: fault\n[signal SIGBUS: bus error code=0x2]\n\ngoroutine 1 [running]:\nruntime.throw({0x1, 0x2})\n" +
			"\truntime/panic.go:1 +0x4\ngo.etcd.io/bbolt.(*Tx).page(...)\n\tgo.etcd.io/bbolt@v1.5.0/tx.go:1\n", true},
		"no memory": {"fatal error: runtime: out of memory\n\ngoroutine 1 [running]:\ngo.etcd.io/bbolt.(*Tx).allocate(...)\n\ttx.go:1\n", false},
		"elsewhere": {"panic: assignment to entry in nil map\n\ngoroutine 1 [running]:\nmain.main()\n\tmain.go:1\n\ngoroutine 2 [select]:\n" +
			"go.etcd.io/bbolt.(*DB).Batch(...)\n\tdb.go:1\n", false},
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(before+test.log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := crashedInDatabase(path, 0); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		if crashedInDatabase(path, int64(len(before+test.log))) {
			t.Errorf("%s: the crash of an earlier process counts", name)
		}
		if got := crashedInDatabase(path, int64(len(before+test.log)+1)); got != test.want {
			t.Errorf("%s: after the log was truncated: %v", name, got)
		}
	}
}

// A disk that fails again and again is not filled with what was moved aside.
func TestMoveAsideIsBounded(t *testing.T) {
	r, err := New(Config{BundleDir: "/bundle", DataDir: t.TempDir(), RunDir: t.TempDir(), CNIConfDir: "/cni"})
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(r.rootDir(), metadataPlugin, "meta.db")
	for i := range mostAside {
		if err := os.MkdirAll(filepath.Join(r.rootDir(), fmt.Sprintf("%s%d", asidePrefix, i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Dir(kept), 0o700), os.WriteFile(kept, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	err = r.moveAside(t.Context(), errDamaged)
	if !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), "was not moved aside") {
		t.Errorf("moved once more: %v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}

// TestDamagedDatabases damages one of containerd's databases while containerd is
// stopped and a pod runs. The first Run says what it has moved aside. The next one
// has the bundled images, and nothing of the pod is left.
func TestDamagedDatabases(t *testing.T) {
	whole := func(path string) (begin, end int64, err error) {
		info, err := os.Stat(path)
		if err != nil {
			return 0, 0, err
		}
		return 0, info.Size(), nil
	}
	inside := func(path string) (begin, end int64, err error) {
		_, end, err = whole(path)
		return 2 * int64(os.Getpagesize()), end, err // the first two pages say what the others are
	}
	for name, test := range map[string]struct {
		path  string
		bytes func(path string) (begin, end int64, err error)
	}{
		"metadata":                  {metadataPlugin + "/meta.db", whole},
		"the inside of metadata":    {metadataPlugin + "/meta.db", inside},
		"metadata of the snapshots": {snapshotPlugin + "/metadata.db", whole},
	} {
		t.Run(name, func(t *testing.T) {
			r := testRuntime(t)
			stop := runUntilReady(t, r)
			startPod(t, r)
			stop()
			path := filepath.Join(r.rootDir(), test.path)
			begin, end, err := test.bytes(path)
			if err != nil {
				t.Fatal(err)
			}
			overwrite(t, path, begin, end)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := r.Run(ctx); !errors.Is(err, errDamaged) {
				log, _ := os.ReadFile(r.LogFile())
				t.Fatalf("Run: %v; log:\n%s", err, log)
			}
			again, err := New(r.config)
			if err != nil {
				t.Fatal(err)
			}
			defer runUntilReady(t, again)()
			checkStartedOver(t, again, test.path, begin, end)
		})
	}
}

// overwrite replaces a part of a file with what means nothing.
func overwrite(t *testing.T, path string, begin, end int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, int(end-begin)), begin); err != nil {
		t.Fatal(err)
	}
}

// checkStartedOver checks that a runtime has the bundled images and no pods, and
// that it has kept the damaged database.
func checkStartedOver(t *testing.T, r *Runtime, database string, begin, end int64) {
	t.Helper()
	kept, err := filepath.Glob(filepath.Join(r.rootDir(), asidePrefix+"*", database))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept are %v, %v", kept, err)
	}
	raw, err := os.ReadFile(kept[0])
	if err != nil || int64(len(raw)) != end || bytes.Count(raw[begin:], []byte{0xa5}) != int(end-begin) {
		t.Errorf("the damaged database has changed: %d bytes, %v", len(raw), err)
	}
	conn, err := r.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if id, err := imageID(t.Context(), conn, SandboxImage); err != nil || id == "" {
		t.Errorf("the image of sandboxes is %q, %v", id, err)
	}
	pods, err := runtimeapi.NewRuntimeServiceClient(conn).ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(pods.GetItems()) > 0 {
		t.Errorf("the runtime has the pods %v, %v", pods, err)
	}
	for _, dir := range cgroupsBelow(t, r.config.CgroupRoot) {
		if pids := cgroupProcesses(dir); len(pids) > 0 {
			t.Errorf("processes %v of the former pod run in %s", pids, dir)
		}
	}
	startPod(t, r) // under the names of the former one
}
