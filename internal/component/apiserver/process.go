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

// maxCopied bounds the bytes that copy operations of one JSON patch of a webhook
// or policy add to an object. The value is upstream's.
const maxCopied = 3 << 20

// SetProcess sets process-wide state of the API server's libraries: the feature
// gates of k8s.io/apiserver, the bound on patches of webhooks, and contention
// profiling. Call it before New, in a process that runs only an API server with
// these arguments (see base.Set).
func SetProcess(arguments []string) error {
	o := NewOptions()
	fs := pflag.NewFlagSet("apiserver", pflag.ContinueOnError)
	o.AddFlags(fs)
	return errors.Join(base.Set("apiserver", fs, arguments), o.setProcess())
}

func (o *Options) setProcess() error {
	jsonpatch.AccumulatedCopySizeLimit = maxCopied
	if o.Profiling.Enabled && o.Profiling.Contention {
		runtime.SetBlockProfileRate(1)
	}
	gates, err := feature.Parse(o.APIs.FeatureGates)
	if err != nil {
		return err
	}
	named := gates.Named()
	ofLibraries := map[string]bool{}
	for name := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if on, ok := named[feature.Gate(name)]; ok {
			ofLibraries[string(name)] = on
		}
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(ofLibraries); err != nil {
		return fmt.Errorf("--feature-gates: %w", err)
	}
	return nil
}
