package guard

import (
	"errors"
	"testing"
)

func TestCall(t *testing.T) {
	failed := errors.New("failed")
	if err := Call(t.Context(), "work", func() error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	var none map[string]int
	err := Call(t.Context(), "work", func() error { none["x"] = 1; return nil })
	if err == nil || err.Error() != "work: panic: assignment to entry in nil map" {
		t.Error(err)
	}
}
