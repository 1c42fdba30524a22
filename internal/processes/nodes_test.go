package processes

import (
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// together is a node that ends once both nodes and not the control plane were
// asked to.
func together(dir, name string) int {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	NewReporter().Send(Message{Ready: true})
	<-asked
	if os.WriteFile(filepath.Join(dir, "asked-"+name), nil, 0o600) != nil {
		return 1
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for range again.C {
		if all, err := filepath.Glob(filepath.Join(dir, "asked-*")); err != nil || len(all) == 2 {
			break
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ended")); err == nil {
		return 1
	}
	return 0
}

// TestNodesAreStoppedTogether checks that several nodes are asked to end at the
// same time, and the control plane after them.
func TestNodesAreStoppedTogether(t *testing.T) {
	s := superviseIn(t, t.TempDir(), "works", "together", nil, "TEST_NODES=2")
	st := s.until("all are ready", func(st Status) bool { return st.Ready })
	if len(st.Processes) != 3 || st.Processes[2].Name != "node-2" {
		t.Errorf("processes %+v", st.Processes)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, s.log)
	}
	for _, name := range []string{"asked-node", "asked-node-2", "ended"} {
		if _, err := os.Stat(filepath.Join(s.dir, name)); err != nil {
			t.Error(err)
		}
	}
}
