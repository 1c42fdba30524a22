package etcd

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"google.golang.org/grpc"

	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/supervise"
)

// fakeKV is a KVClient that accepts all requests.
type fakeKV struct {
	pb.KVClient
	taken atomic.Int64
}

func (k *fakeKV) Txn(context.Context, *pb.TxnRequest, ...grpc.CallOption) (*pb.TxnResponse, error) {
	k.taken.Add(1)
	return &pb.TxnResponse{Succeeded: true, Header: &pb.ResponseHeader{Revision: k.taken.Load()}}, nil
}

func (k *fakeKV) Range(context.Context, *pb.RangeRequest, ...grpc.CallOption) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 7}}, nil
}

func conditions(g *supervise.Group) []supervise.Condition {
	status, _ := g.Status()
	return status.Components[0].Conditions
}

// TestNearlyFullDiskRefusesWrites checks that writes are refused before the
// disk is full and accepted once there is space, and that reads and deletions are
// always accepted.
func TestNearlyFullDiskRefusesWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		var free atomic.Uint64
		free.Store(500 * mib)
		etcd := &fakeKV{}
		r := newSpaceCheck(etcd, "/data", func(string) (uint64, uint64, error) { return 10000 * mib, free.Load(), nil })
		s := newStore(r, nil)
		ctx, cancel := context.WithCancel(t.Context())
		g := supervise.NewGroup(supervise.Options{})
		g.Go(ctx, "etcd", func(ctx context.Context) error { r.report(ctx); return nil })
		create := func() error {
			_, err := s.Create(ctx, "/a", []byte("b"), 0)
			return err
		}
		if err := create(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		free.Store(95 * mib)
		time.Sleep(checkInterval)
		err := create()
		if !errors.Is(err, store.ErrFull) || !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("a write to a full disk: %v", err)
		}
		for _, want := range []string{"no space left on device", "95 MiB", "/data", "96 MiB"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
		synctest.Wait()
		if c := conditions(g); len(c) != 1 || c[0].Name != "DiskFull" || !strings.Contains(c[0].Message, "/data") {
			t.Errorf("conditions are %+v", c)
		}
		if _, err := s.Delete(ctx, "/a", 1); err != nil {
			t.Errorf("a deletion: %v", err)
		}
		if _, err := s.CurrentRevision(ctx); err != nil {
			t.Errorf("a read: %v", err)
		}
		free.Store(100 * mib)
		time.Sleep(2 * fullCheckInterval)
		if create() == nil {
			t.Error("writes are accepted again with only slightly more free space")
		}
		free.Store(200 * mib)
		time.Sleep(2 * fullCheckInterval)
		if err := create(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if c := conditions(g); len(c) != 0 {
			t.Errorf("conditions are %+v", c)
		}
		cancel()
		g.Wait()
	})
}

// TestHangingDisk checks that a disk that does not answer delays a write by at
// most checkInterval, and not beyond its deadline.
func TestHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		hangs := false
		r := newSpaceCheck(&fakeKV{}, "/data", func(string) (uint64, uint64, error) {
			if hangs {
				<-answer
			}
			return 1 << 40, 1 << 39, nil
		})
		hangs = true
		time.Sleep(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.report(ctx)
		s := newStore(r, nil)
		var writers sync.WaitGroup
		for range 10 {
			writers.Go(func() {
				began := time.Now()
				if _, err := s.Create(ctx, "/a", []byte("b"), 0); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > checkInterval {
					t.Errorf("a write took %v", took)
				}
			})
			writers.Go(func() {
				short, cancel := context.WithTimeout(ctx, checkInterval/2)
				defer cancel()
				if _, err := s.Create(short, "/a", []byte("b"), 0); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a write with a short deadline: %v", err)
				}
			})
		}
		writers.Wait()
		close(answer)
	})
}

// TestReservedSpaceOfSmallDisks checks that the reserved space is at least the
// size of etcd's next log file.
func TestReservedSpaceOfSmallDisks(t *testing.T) {
	const mib = 1 << 20
	if wal.SegmentSizeBytes != logFile {
		t.Errorf("a file of etcd's log has %d bytes, want %d", wal.SegmentSizeBytes, logFile)
	}
	for _, test := range []struct {
		size, free uint64
		takes      bool
	}{{200, 71, true}, {200, 67, false}, {800, 82, true}, {800, 79, false}, {900, 91, true}, {900, 89, false}, {10000, 97, true}, {10000, 95, false}} {
		r := newSpaceCheck(&fakeKV{}, "/data", func(string) (uint64, uint64, error) { return test.size * mib, test.free * mib, nil })
		if err := r.check(); (err == nil) != test.takes {
			t.Errorf("%d of %d MiB are free: %v", test.free, test.size, err)
		}
	}
	r := newSpaceCheck(&fakeKV{}, "/data", func(string) (uint64, uint64, error) { return 0, 0, errors.New("no such directory") })
	if err := r.check(); err != nil {
		t.Errorf("a disk whose free space is unknown: %v", err)
	}
}

func TestStartOnFullDisk(t *testing.T) {
	broken := errors.New("failed to repair WAL")
	full := func(string) (uint64, uint64, error) { return 1 << 30, 0, nil }
	if err := addDiskFull("/data", full, broken); !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	roomy := func(string) (uint64, uint64, error) { return 1 << 30, 1 << 29, nil }
	if err := addDiskFull("/data", roomy, broken); err != broken {
		t.Errorf("got %v", err)
	}
}
