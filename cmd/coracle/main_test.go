package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/test/mark"
)

func TestMain(m *testing.M) { os.Exit(mark.Main(m)) }

// An interrupted command reports that it did not finish, and what it could not
// clean up.
func TestInterruptedCommandsSaySo(t *testing.T) {
	cleaning := errors.New("remove the containers: busy")
	for _, tt := range []struct {
		err  error
		code int
		text string
	}{
		{nil, 0, ""},
		{errReported, 1, ""},
		{errors.Join(errReported, cleaning), 1, "coracle: remove the containers: busy\n"},
		{errors.New("a\nb"), 1, "coracle: a\ncoracle: b\n"},
		{errors.New("red \x1b[31m\u009b\u202e"), 1, "coracle: red [31m\n"},
		{context.Canceled, 130, "coracle: interrupted\n"},
		{fmt.Errorf("list: %w", context.Canceled), 130, "coracle: list: context canceled\n"},
		{errors.Join(startError{fmt.Errorf("%w before the cluster was ready", errInterrupted)}, cleaning), 130, "coracle: interrupted before the cluster was ready\ncoracle: remove the containers: busy\n"},
		{supervise.IgnoreCanceled(fmt.Errorf("serve: %w", context.Canceled)), 0, ""},
	} {
		var out strings.Builder
		if code := report(&out, tt.err); code != tt.code || out.String() != tt.text {
			t.Errorf("%v: code %d, %q; want %d, %q", tt.err, code, out.String(), tt.code, tt.text)
		}
	}
}
