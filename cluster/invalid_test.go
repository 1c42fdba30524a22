package cluster

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/goldentest"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata")

// TestInvalidValues gives each flag nonsensical values and checks that Check
// refuses them. testdata/invalid.txt lists the accepted ones: each of them may
// be intended. Record a change with go test ./cluster -run TestInvalidValues
// -rewrite.
func TestInvalidValues(t *testing.T) {
	var accepted strings.Builder
	for _, c := range []struct {
		name     string
		addFlags func(*pflag.FlagSet)
		set      func(*Options, []string)
	}{
		{"apiserver", apiserver.NewOptions().AddFlags, func(o *Options, a []string) { o.APIServerArgs = a }},
		{"controller-manager", component.NewControllerManager().AddFlags, func(o *Options, a []string) { o.ControllerManagerArgs = a }},
		{"scheduler", component.NewScheduler().AddFlags, func(o *Options, a []string) { o.SchedulerArgs = a }},
		{"kubelet", component.NewKubelet().AddFlags, func(o *Options, a []string) { o.KubeletArgs = a }},
		{"proxy", component.NewProxy().AddFlags, func(o *Options, a []string) { o.ProxyArgs = a }},
		{"etcd", component.NewEtcd("").AddFlags, func(o *Options, a []string) { o.EtcdArgs = a }},
	} {
		fs := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
		c.addFlags(fs)
		fs.VisitAll(func(f *pflag.Flag) {
			for _, value := range invalid(f.Value.Type()) {
				o := Options{DataDir: t.TempDir(), Etcd: &EtcdOptions{}, Ports: Ports{Secure: 6443}}
				c.set(&o, []string{f.Name + "=" + value})
				switch err := Check(o); {
				case err == nil:
					fmt.Fprintf(&accepted, "%s --%s=%q\n", c.name, f.Name, value)
				case !strings.Contains(err.Error(), f.Name) && !strings.Contains(err.Error(), "any oidc-* flags"):
					t.Errorf("%s: --%s=%s is refused without being named: %v", c.name, f.Name, value, err)
				}
			}
		})
	}
	goldentest.Compare(t, "testdata/invalid.txt", accepted.String(), *rewrite, "go test ./cluster -run TestInvalidValues -rewrite")
}

// invalid returns values that make no sense for nearly all flags of a type.
func invalid(kind string) []string {
	switch kind {
	case "bool":
		return []string{"perhaps"}
	case "int", "int32", "int64", "float64", "float32", "uint32":
		return []string{"many", "-7"}
	case "duration":
		return []string{"soon", "-7s"}
	}
	return []string{"no such: thing,/"}
}
