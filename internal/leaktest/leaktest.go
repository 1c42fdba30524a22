// Package leaktest checks that tests leave no goroutines.
//
// goleak looks for half a second. On a machine that does other work, a goroutine
// that is about to end may get no processor for longer than that. A leaked one
// never ends, so this package looks for a minute.
package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const patience = time.Minute

// Run runs the tests of a package and returns the exit code, which is 1 if
// goroutines are left after tests that passed.
func Run(m interface{ Run() int }, options ...goleak.Option) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	if err := find(patience, options...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Check fails the test if goroutines are left. The option
// goleak.IgnoreCurrent, evaluated at the beginning of the test, exempts those
// that ran before.
func Check(t testing.TB, options ...goleak.Option) {
	t.Helper()
	if err := find(patience, options...); err != nil {
		t.Error(err)
	}
}

// find returns an error if goroutines are left for longer than a duration.
func find(patience time.Duration, options ...goleak.Option) error {
	begun := time.Now()
	for {
		err := goleak.Find(options...)
		if err == nil || time.Since(begun) >= patience {
			return err
		}
	}
}
