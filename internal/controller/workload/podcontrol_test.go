package workload

import (
	"context"
	"errors"
	"testing"
)

func TestSlowStartBatch(t *testing.T) {
	calls := 0
	full := errors.New("full")
	done, err := SlowStartBatch(t.Context(), 100, func(context.Context, int) error { return nil })
	if done != 100 || err != nil {
		t.Errorf("%d, %v", done, err)
	}
	done, err = SlowStartBatch(t.Context(), 100, func(context.Context, int) error { calls++; return full })
	if done != 0 || !errors.Is(err, full) || calls != 1 {
		t.Errorf("%d, %v after %d calls", done, err, calls)
	}
}
