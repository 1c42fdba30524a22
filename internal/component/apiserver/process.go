package apiserver

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/pflag"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/feature"
)

// maxCopied is how many bytes the copies of one JSON patch of a webhook or
// policy add to an object, as of clients' patches: upstream's figure.
const maxCopied = 3 << 20

// SetProcess sets what libraries of the API server keep once per process: the
// feature gates of k8s.io/apiserver, the bound on patches of webhooks, and
// whether the Go runtime records where goroutines wait for each other. It is for
// a process that is an API server's alone, with these arguments (see Set), and
// comes before the server is made.
func SetProcess(arguments []string) error {
	f := NewFlags()
	fs := pflag.NewFlagSet("apiserver", pflag.ContinueOnError)
	f.AddFlags(fs)
	return errors.Join(base.Set("apiserver", fs, arguments), f.setProcess())
}

func (f *Flags) setProcess() error {
	jsonpatch.AccumulatedCopySizeLimit = maxCopied
	if f.Profiling && f.ContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	gates, err := feature.Parse(f.FeatureGates)
	if err != nil {
		return err
	}
	given := gates.Given()
	theirs := map[string]bool{}
	for name := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if on, ok := given[string(name)]; ok {
			theirs[string(name)] = on
		}
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(theirs); err != nil {
		return fmt.Errorf("--feature-gates: %w", err)
	}
	return nil
}
