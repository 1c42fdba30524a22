package node

import (
	"testing"
	"time"
)

// A runtime that is started anew does not take its node's pods out of service.
func TestASilentRuntime(t *testing.T) {
	r := NewReporter(Config{})
	now := time.Unix(1e9, 0)
	if f := r.silent(Facts{Now: now}, "not yet"); len(f.NotReady) != 1 {
		t.Errorf("a runtime that has never answered: %v", f.NotReady)
	}
	r.answered = &Facts{Now: now}
	if f := r.silent(Facts{Now: now.Add(runtimePatience - 1)}, "down"); len(f.NotReady) != 0 {
		t.Errorf("a runtime that answered a moment ago: %v", f.NotReady)
	}
	if f := r.silent(Facts{Now: now.Add(runtimePatience)}, "down"); len(f.NotReady) != 1 || f.NotReady[0] != "down" {
		t.Errorf("a runtime that has been silent for long: %v", f.NotReady)
	}
	r.answered.NotReady = []string{"network"}
	if f := r.silent(Facts{Now: now.Add(time.Second)}, "down"); len(f.NotReady) != 1 || f.NotReady[0] != "network" {
		t.Errorf("a runtime that was not ready before: %v", f.NotReady)
	}
}
