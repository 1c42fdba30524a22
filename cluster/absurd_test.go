package cluster

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/component/apiserver"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

// Whatever a flag is given, the command says what is wrong with it before
// anything starts. testdata/absurd.txt has the values that are taken: each is
// one that may well be meant.
func TestAbsurdValues(t *testing.T) {
	var taken strings.Builder
	for _, c := range []struct {
		name     string
		addFlags func(*pflag.FlagSet)
		hand     func(*Options, []string)
	}{
		{"apiserver", apiserver.NewFlags().AddFlags, func(o *Options, a []string) { o.APIServerArgs = a }},
		{"controller-manager", component.NewControllerManager().AddFlags, func(o *Options, a []string) { o.ControllerManagerArgs = a }},
		{"scheduler", component.NewScheduler().AddFlags, func(o *Options, a []string) { o.SchedulerArgs = a }},
		{"kubelet", component.NewKubelet().AddFlags, func(o *Options, a []string) { o.KubeletArgs = a }},
		{"proxy", component.NewProxy().AddFlags, func(o *Options, a []string) { o.ProxyArgs = a }},
		{"etcd", component.NewEtcd("").AddFlags, func(o *Options, a []string) { o.EtcdArgs = a }},
	} {
		fs := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
		c.addFlags(fs)
		fs.VisitAll(func(f *pflag.Flag) {
			for _, value := range absurd(f.Value.Type()) {
				o := Options{DataDir: t.TempDir(), Etcd: &EtcdOptions{}, Ports: Ports{Secure: 6443}}
				c.hand(&o, []string{f.Name + "=" + value})
				switch err := Check(o); {
				case err == nil:
					fmt.Fprintf(&taken, "%s --%s=%q\n", c.name, f.Name, value)
				case !strings.Contains(err.Error(), f.Name) && !strings.Contains(err.Error(), "any oidc-* flags"):
					t.Errorf("%s: --%s=%s is refused without being named: %v", c.name, f.Name, value, err)
				}
			}
		})
	}
	const golden = "testdata/absurd.txt"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(taken.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if taken.String() != string(want) {
		t.Errorf("taken are\n%swant\n%s", taken.String(), want)
	}
}

// absurd are values that hardly any flag of a type can mean.
func absurd(kind string) []string {
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
