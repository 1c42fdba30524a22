package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Whoever interrupts a command, and every script around it, learns that it is
// not done, and what could not be cleaned up.
func TestInterruptedCommandsSaySo(t *testing.T) {
	cleaning := errors.New("remove the containers: busy")
	for _, tt := range []struct {
		err  error
		code int
		text string
	}{
		{nil, 0, ""},
		{errTold, 1, ""},
		{errors.New("a\nb"), 1, "coracle: a\ncoracle: b\n"},
		{context.Canceled, 130, "coracle: interrupted\n"},
		{fmt.Errorf("list: %w", context.Canceled), 130, "coracle: list: context canceled\n"},
		{errors.Join(startError{fmt.Errorf("%w before the cluster was ready", errInterrupted)}, cleaning), 130, "coracle: interrupted before the cluster was ready\ncoracle: remove the containers: busy\n"},
		{asked(fmt.Errorf("serve: %w", context.Canceled)), 0, ""},
	} {
		var out strings.Builder
		if code := tell(&out, tt.err); code != tt.code || out.String() != tt.text {
			t.Errorf("%v: code %d, %q; want %d, %q", tt.err, code, out.String(), tt.code, tt.text)
		}
	}
}
