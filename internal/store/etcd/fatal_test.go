package etcd

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

// TestFatalErrorDoesNotEndTheProcess checks that etcd's fatal errors are
// reported and do not end the process.
func TestFatalErrorDoesNotEndTheProcess(t *testing.T) {
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
			t.Error("the call of the logger returned: etcd continues after a fatal error")
		}
		if err := <-ends; !strings.Contains(err.Error(), "entries: no space left on device") {
			t.Errorf("got %v", err)
		}
	}
}

// TestFailedPurgeIsNotFatal checks that etcd continues if it cannot delete old
// files.
func TestFailedPurgeIsNotFatal(t *testing.T) {
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

func TestRunReturnsFatalError(t *testing.T) {
	e, err := Embed(t.Context(), Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(t.Context()) }()
	e.fatal <- errors.New("no space left on device")
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("got %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("Run did not return")
	}
}

// TestFailureDuringElection checks that Embed does not wait for the end of an
// etcd that failed before it had a leader, because it may hold a lock forever.
func TestFailureDuringElection(t *testing.T) {
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
	go func() { failed <- (&Embedded{server: server, fatal: ends}).lead(t.Context(), true) }()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("got %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("lead waits for an etcd that hangs")
	}
}
