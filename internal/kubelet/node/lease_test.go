package node

import (
	"testing"
	"time"
)

// An API server that is away for an hour does not fill the log: the first
// failures of each outage are logged, and later ones rarely.
func TestFailuresInARowAreLoggedRarely(t *testing.T) {
	var log failureLog
	logged := map[string]int{}
	began := time.Now()
	for second := range 3600 {
		if log.due(began.Add(time.Duration(second) * time.Second)) {
			logged["hour"]++
			if second < 60 {
				logged["minute"]++
			}
		}
	}
	if logged["minute"] != 6 || logged["hour"] < 10 || logged["hour"] > 25 {
		t.Errorf("logged are %v of 60 and 3600 failures", logged)
	}
}
