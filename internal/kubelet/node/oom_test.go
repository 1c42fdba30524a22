package node

import (
	"context"
	"fmt"
	"io"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
)

func TestOOMVictim(t *testing.T) {
	const rest = " total-vm:1000kB, anon-rss:900kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:80kB oom_score_adj:0\n SUBSYSTEM=x\n"
	for record, want := range map[string]string{
		"3,1342,81267,-;Out of memory: Killed process 91 (postgres)" + rest:                                 "postgres 91",
		"3,1342,81267,-,caller=T91;Out of memory: Killed process 91 (postgres)" + rest:                      "postgres 91",
		"3,1342,81267,-;Out of memory: Killed process 91 (a (b) 2)" + rest:                                  "a (b) 2 91",
		"3,1342,81267,-;Out of memory (oom_kill_allocating_task): Killed process 91 (sh)" + rest:            "sh 91",
		"3,1342,81267,-;Memory cgroup out of memory: Killed process 91 (postgres)" + rest:                   "",
		"11,1342,81267,-;Out of memory: Killed process 91 (written by a user)" + rest:                       "",
		"6,1341,81266,-;oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg=/,task=sh,pid=91,uid=0\n": "",
		"3,1342,81267,-;Out of memory: Killed process x (sh)" + rest:                                        "",
		"3,1342,81267,-;Out of memory: Killed process 91":                                                   "",
		"Out of memory: Killed process 91 (sh)" + rest:                                                      "",
		"": "",
	} {
		got := ""
		if process, pid, ok := oomVictim(kernelText(record)); ok {
			got = fmt.Sprint(process, " ", pid)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", record, got, want)
		}
	}
}

// records is a log whose records a test sends; an empty one stands for records that the
// kernel has overwritten.
type records struct {
	next   chan string
	closed chan struct{}
}

func (r *records) Read(p []byte) (int, error) {
	select {
	case record := <-r.next:
		if record == "" {
			return 0, syscall.EPIPE
		}
		return copy(p, record), nil
	case <-r.closed:
		return 0, io.ErrClosedPipe
	}
}

func (r *records) Close() error {
	close(r.closed)
	return nil
}

// The log is read until the kubelet ends, also if records are lost, and is closed once.
// Of the processes that are killed together, the first counts.
func TestWatchOOM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &records{make(chan string), make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		var killed []int
		ended := make(chan error)
		go func() { ended <- WatchOOM(ctx, log, func(_ string, pid int) { killed = append(killed, pid) }) }()
		for _, record := range []string{
			"6,1,1,-;usb 1-1: new device\n",
			"4,2,2,-;a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n",
			"6,3,3,-;Mem-Info:\n",
			"3,4,4,-;Out of memory: Killed process 1 (a) total-vm:1kB\n",
			"3,5,5,-;Out of memory: Killed process 11 (a) total-vm:1kB\n",
			"4,6,6,-;b invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n",
			"3,7,7,-;Memory cgroup out of memory: Killed process 12 (b) total-vm:1kB\n",
			"3,8,8,-;Out of memory: Killed process 13 (b) total-vm:1kB\n",
			"4,9,9,-;b invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n",
			"",
			"3,99,99,-;Out of memory: Killed process 2 (b) total-vm:1kB\n",
		} {
			log.next <- record
		}
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil || !slices.Equal(killed, []int{1, 2}) {
			t.Errorf("killed were %v, want 1 and 2: %v", killed, err)
		}

		broken := &records{make(chan string), make(chan struct{})}
		go func() { ended <- WatchOOM(t.Context(), failing{broken}, nil) }()
		if err := <-ended; err == nil {
			t.Error("a log that cannot be read is no error")
		}
		<-broken.closed
	})
}

type failing struct{ io.ReadCloser }

func (failing) Read([]byte) (int, error) { return 0, syscall.EINVAL }
