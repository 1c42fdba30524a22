package scheduler

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
)

// A watch of client-go's object tracker panics if an event does not fit into
// its buffer. A scheduler may make a hundred writes before readers run.
func TestMain(m *testing.M) {
	watch.DefaultChanSize = 1000
	os.Exit(m.Run())
}
