// Package bubble makes client-go fit for the bubbles of testing/synctest. Tests
// import it for its effect.
//
// apimachinery's handlers of errors share one limit in a process: a goroutine that
// reports an error sleeps until a millisecond has passed since the last error.
// Clocks of bubbles begin in the year 2000, so the first error reported in a
// bubble puts its goroutine, which may be an informer's, to sleep for decades.
package bubble

import utilruntime "k8s.io/apimachinery/pkg/util/runtime"

// init keeps the handler that logs. It runs before any goroutine reports errors.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }
