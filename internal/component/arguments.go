package component

import (
	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/component/base"
)

// Given checks arguments for a component ("apiserver", "etcd") in the form that
// base.Set takes, and NAME-, which takes NAME away, before they are kept: each
// must name a flag of the component. The paths among the values become absolute.
func Given(component string, arguments []string) ([]string, error) {
	addFlags := map[string]func(*pflag.FlagSet){
		"apiserver": apiserver.NewFlags().AddFlags, "controller-manager": NewControllerManager().AddFlags, "scheduler": NewScheduler().AddFlags,
		"kubelet": NewKubelet().AddFlags, "proxy": NewProxy().AddFlags, "etcd": NewEtcd("").AddFlags,
	}[component]
	fs := pflag.NewFlagSet(component, pflag.ContinueOnError)
	addFlags(fs)
	return base.Given(component, fs, arguments)
}
