package dynamicresources_test

import (
	"testing"

	"github.com/coracle-io/coracle/internal/resource/dynamicresources"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestAnswers replays what upstream answered about this group's kinds.
func TestAnswers(t *testing.T) {
	resourcetest.Replay(t, dynamicresources.Resources(), "testdata/differences.txt", nil)
}
