package storage_test

import (
	"testing"

	"github.com/coracle-io/coracle/internal/resource/resourcetest"
	"github.com/coracle-io/coracle/internal/resource/storage"
)

// TestAnswers replays what upstream answered about this group's kinds.
func TestAnswers(t *testing.T) {
	resourcetest.Replay(t, storage.Resources(), "testdata/differences.txt", nil)
}
