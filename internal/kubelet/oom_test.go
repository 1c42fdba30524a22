package kubelet

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coracle-io/coracle/internal/kubelet/node"
)

// logging is a machine with a log of its kernel, of which each Read returns a record
// that a test sends.
type logging struct {
	node.Machine
	records chan string
	closed  chan struct{}
}

func (l *logging) KernelLog() (io.ReadCloser, error) { return l, nil }

func (l *logging) Read(p []byte) (int, error) {
	select {
	case record := <-l.records:
		return copy(p, record), nil
	case <-l.closed:
		return 0, io.ErrClosedPipe
	}
}

func (l *logging) Close() error {
	close(l.closed)
	return nil
}

// The node has an event of a process that was killed because the machine has no memory,
// none of one that was killed for the limit of its pod, and not one for each of very many.
func TestSystemOOM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := &logging{records: make(chan string), closed: make(chan struct{})}
		b := newBench(t)
		b.configure = func(c *Config) { machine.Machine, c.Machine = c.Machine, machine }
		events := b.record()
		b.start()
		defer func() { b.stop() }()
		kill := func(cause string, pid int) {
			machine.records <- "4,1,1,-;sh invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
			machine.records <- fmt.Sprintf("3,%d,1,-;%s: Killed process %d (postgres) total-vm:1000kB, anon-rss:900kB\n", pid, cause, pid)
		}
		kill("Memory cgroup out of memory", 90)
		kill("Out of memory", 91)
		b.after(time.Minute)
		if got, want := events("SystemOOM"), []string{"System OOM encountered, victim process: postgres, pid: 91"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		for pid := range 100 {
			kill("Out of memory", 100+pid)
		}
		b.after(time.Minute)
		if n := len(events("SystemOOM")); n < 2 || n > oomEventBurst+3 {
			t.Errorf("%d events of a hundred processes, want about %d", n, oomEventBurst)
		}
	})
}
