package devices_test

import (
	"testing"

	"github.com/coracle-io/coracle/internal/resource/devices"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestAnswers replays what upstream answered about this group's kinds.
func TestAnswers(t *testing.T) {
	resourcetest.Replay(t, devices.Resources(), "testdata/differences.txt", nil)
}
