package base

import (
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/version"
)

// pages are handlers by path.
type pages map[string]http.Handler

// Handle adds a page.
func (p pages) Handle(path string, h http.Handler) { p[path] = h }

// AddZPages adds /flagz (KEP-4828), every flag with its value, and /statusz
// (KEP-4827), the component's start time, version and paths: those in handlers
// and more. The pages are created on the first request.
func AddZPages(handlers pages, component string, flags FlagValues, gates *feature.Set, more ...string) {
	if gates.Enabled(feature.ComponentFlagz) {
		handlers.Handle(flagz.DefaultFlagzPath, onDemand(flagz.DefaultFlagzPath, func(p pages) { flagz.Install(p, component, flags) }))
	}
	if gates.Enabled(feature.ComponentStatusz) {
		paths := slices.AppendSeq(more, maps.Keys(handlers))
		handlers.Handle(statusz.DefaultStatuszPath, onDemand(statusz.DefaultStatuszPath, func(p pages) {
			running := compatibility.NewEffectiveVersionFromString(version.Kubernetes, "", "")
			statusz.Install(p, component, statusz.NewRegistry(running, statusz.WithListedPaths(paths)))
		}))
	}
}

func onDemand(path string, install func(pages)) http.Handler {
	installed := sync.OnceValue(func() http.Handler {
		p := pages{}
		install(p)
		return p[path]
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { installed().ServeHTTP(w, r) })
}

// FlagValues are the flags that a component was started with.
type FlagValues map[string]string

// GetFlagz implements flagz.Reader.
func (f FlagValues) GetFlagz() map[string]string { return f }

// FlagValuesOf returns the values of the flags that bind defines. It does not
// change them, but nothing else may access them concurrently.
func FlagValuesOf(bind func(*pflag.FlagSet)) FlagValues {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	bind(set)
	return ValuesOf(set)
}

// ValuesOf returns the values of flags. A nil set has none.
func ValuesOf(fs *pflag.FlagSet) FlagValues {
	values := FlagValues{}
	if fs != nil {
		fs.VisitAll(func(f *pflag.Flag) { values[f.Name] = f.Value.String() })
	}
	return values
}
