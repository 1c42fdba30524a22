package node

import (
	"testing"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// A restart of the runtime does not make the node unready.
func TestUnresponsiveRuntime(t *testing.T) {
	r, err := NewReporter(Config{Configuration: &kubeletconfig.KubeletConfiguration{}, Machine: &Fixed{}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1e9, 0)
	if f := r.unresponsive(Facts{Now: now}, "not yet"); len(f.NotReady) != 1 {
		t.Errorf("a runtime that has never answered: %v", f.NotReady)
	}
	r.answered = &Facts{Now: now}
	if f := r.unresponsive(Facts{Now: now.Add(runtimePatience - 1)}, "down"); len(f.NotReady) != 0 {
		t.Errorf("a runtime that answered a moment ago: %v", f.NotReady)
	}
	if f := r.unresponsive(Facts{Now: now.Add(runtimePatience)}, "down"); len(f.NotReady) != 1 || f.NotReady[0] != "down" {
		t.Errorf("a runtime that has been unresponsive for too long: %v", f.NotReady)
	}
	r.answered.NotReady = []string{"network"}
	if f := r.unresponsive(Facts{Now: now.Add(time.Second)}, "down"); len(f.NotReady) != 1 || f.NotReady[0] != "network" {
		t.Errorf("a runtime that was not ready before: %v", f.NotReady)
	}
}
