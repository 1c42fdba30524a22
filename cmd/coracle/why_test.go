package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/internal/scheduler/explain"
)

// Text from tenants cannot control the terminal, in any form of --output.
func TestReportsArePrintable(t *testing.T) {
	const bad = "x\x1b[2J\u009b\u202e"
	report := &explain.DryRun{Pods: []*explain.Decision{}, NotRead: []string{bad}}
	for _, output := range []string{"", "json"} {
		var b strings.Builder
		if err := write(&b, output, report); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(b.String(), "\x1b\u009b\u202e") {
			t.Errorf("--output=%s: control characters in %q", output, b.String())
		}
		if output == "" {
			continue
		}
		var decoded explain.DryRun
		if err := json.Unmarshal([]byte(b.String()), &decoded); err != nil || decoded.NotRead[0] != bad {
			t.Errorf("%s: %v", b.String(), err)
		}
	}
}

// Ctrl-C ends a command that waits for its input.
func TestReadingInputIsInterruptible(t *testing.T) {
	in, typing := io.Pipe()
	defer func() { _ = typing.Close() }() // the read ends
	for _, args := range [][]string{{"why", "pod/x", "--what-if=-"}, {"scheduler", "--dry-run", "-f", "-"}} {
		ctx, cancel := context.WithCancel(t.Context())
		root := command()
		root.SetIn(interruptedReader{in, cancel})
		root.SetArgs(args)
		var b bytes.Buffer
		if code := report(&b, root.ExecuteContext(ctx)); code != exitInterrupted || b.String() != "coracle: interrupted\n" {
			t.Errorf("%s: code %d, %q", args, code, b.String())
		}
		cancel()
	}
}

// interruptedReader calls interrupt when it is read.
type interruptedReader struct {
	io.Reader
	interrupt func()
}

func (r interruptedReader) Read(b []byte) (int, error) {
	r.interrupt()
	return r.Reader.Read(b)
}
