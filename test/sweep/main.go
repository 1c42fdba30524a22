// Command sweep removes what tests have left on this machine when they were
// killed. make test runs it before the tests that use the machine.
//
// Tests mark what they make (package mark). Sweep removes what has the mark of a
// process that does not run any more, and nothing else: not what a running test
// makes, and nothing of others, whatever its name. Network namespaces without a
// name, which most tests of networks use, end with their processes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/test/mark"
)

// timeout bounds all of a sweep.
const timeout = 10 * time.Minute

func main() {
	program := flag.String("coracle", filepath.Join("bin", "coracle"), "the program that takes clusters down")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s := sweeper{makers: mark.Folder(), clusters: host.NewRegistry(host.Root()), program: *program}
	if err := s.sweep(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "sweep:", err)
		os.Exit(1)
	}
}
