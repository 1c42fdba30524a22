package certificates_test

import (
	"testing"

	"github.com/coracle-io/coracle/internal/resource/certificates"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// TestAnswers replays what upstream answered about this group's kinds.
func TestAnswers(t *testing.T) {
	resourcetest.Replay(t, certificates.Resources(), "testdata/differences.txt", nil)
}
