package etcd

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

// What etcd takes for the end of the process ends only etcd: the process
// goes on, and whoever runs the etcd is told why.
func TestAFatalErrorEndsEtcdAndNotTheProcess(t *testing.T) {
	ends := newFatal()
	log := zapLogger(klog.Background(), ends.options()...)
	for _, die := range []func(string, ...zap.Field){log.Fatal, log.Panic} {
		returned, gone := false, make(chan struct{})
		go func() {
			defer close(gone)
			die("failed to save Raft hard state and entries", zap.Error(errors.New("no space left on device")))
			returned = true
		}()
		<-gone
		if returned {
			t.Error("etcd would go on with what it holds to be impossible")
		}
		if err := <-ends; !strings.Contains(err.Error(), "entries: no space left on device") {
			t.Errorf("got %v", err)
		}
	}
}

// Old files that cannot be deleted are no reason to end.
func TestAFailedPurgeIsNotFatal(t *testing.T) {
	ends := newFatal()
	log := zapLogger(klog.Background(), ends.options()...)
	for _, what := range []string{"failed to purge wal file", "failed to purge snap file", "failed to purge snap db file"} {
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			log.Fatal(what, zap.Error(errors.New("too many open files")))
		}()
		<-gone
		select {
		case err := <-ends:
			t.Errorf("%s: etcd ends: %v", what, err)
		default:
		}
	}
}

func TestRunReturnsWhyEtcdEnded(t *testing.T) {
	e, err := Embed(t.Context(), Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(t.Context()) }()
	e.ends <- errors.New("no space left on device")
	began := time.Now()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it returned after %v", took)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it runs on")
	}
}

// An etcd that fails before it has a leader may hold a lock for ever, which
// nobody waits for.
func TestAnEtcdThatFailsWhileItElects(t *testing.T) {
	ends := newFatal()
	config, err := Config{Dir: t.TempDir()}.embed(klog.Background(), ends)
	if err != nil {
		t.Fatal(err)
	}
	server, err := start(config, ends)
	if err != nil {
		t.Fatal(err)
	}
	lock := server.Server.Backend().BatchTx()
	lock.LockOutsideApply()
	defer func() {
		lock.Unlock()
		for range server.Err() { // closed at its end
		}
	}()
	ends <- errors.New("no space left on device")
	failed := make(chan error)
	go func() { failed <- (&Embedded{server: server, ends: ends}).lead(t.Context(), true) }()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("got %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for the end of an etcd that hangs")
	}
}
