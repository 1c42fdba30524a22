package component

import (
	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/component/base"
)

// Given checks arguments of a component ("apiserver", "etcd") before they are
// stored, and makes paths in them absolute; see base.Given.
func Given(component string, arguments []string, dir string) ([]string, error) {
	addFlags := map[string]func(*pflag.FlagSet){
		"apiserver": apiserver.NewOptions().AddFlags, "controller-manager": NewControllerManager().AddFlags, "scheduler": NewScheduler().AddFlags,
		"kubelet": NewKubelet().AddFlags, "proxy": NewProxy().AddFlags, "etcd": NewEtcd("").AddFlags,
	}[component]
	fs := pflag.NewFlagSet(component, pflag.ContinueOnError)
	addFlags(fs)
	return base.Given(component, fs, arguments, dir)
}
