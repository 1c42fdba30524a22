package rbac_test

import (
	"testing"

	"github.com/coracle-io/coracle/internal/resource/rbac"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestAnswers replays what upstream answered about this group's kinds.
func TestAnswers(t *testing.T) {
	resourcetest.Replay(t, rbac.Resources(), "testdata/differences.txt", nil)
}
