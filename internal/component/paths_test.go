package component

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/spf13/pflag"
)

func everyFlag() *pflag.FlagSet {
	all := pflag.NewFlagSet("all", pflag.ContinueOnError)
	for _, addFlags := range []func(*pflag.FlagSet){
		apiserver.NewFlags().AddFlags, NewControllerManager().AddFlags, NewScheduler().AddFlags, NewKubelet().AddFlags, NewProxy().AddFlags,
		NewDNS().AddFlags, NewEtcd("").AddFlags,
	} {
		one := pflag.NewFlagSet("one", pflag.ContinueOnError)
		addFlags(one)
		all.AddFlagSet(one)
	}
	return all
}

// Every flag that names a file is known to do so, for it means a file of the
// directory in which it is given.
func TestPathFlagsAreKnown(t *testing.T) {
	all := everyFlag()
	for _, name := range base.PathFlags {
		if all.Lookup(name) == nil {
			t.Errorf("no component has --%s", name)
		}
	}
	none := []string{ // that look as if they did
		"authorization-always-allow-paths", "tls-sni-cert-key", "runtime-config",
	}
	looks := regexp.MustCompile(`(^|-)(c?a?file|certfile|keyfile|dir|path|paths|cert|key|certificate|authority|config|kubeconfig|conf)$`)
	all.VisitAll(func(f *pflag.Flag) {
		if looks.MatchString(f.Name) && !slices.Contains(none, f.Name) && !slices.Contains(base.PathFlags, f.Name) {
			t.Errorf("--%s (%s) may name a file: add it to pathFlags, or here", f.Name, f.Usage)
		}
	})
}

func TestGiven(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(here, name) }
	for _, test := range []struct{ given, want string }{
		{"audit-policy-file=policy.yaml", "audit-policy-file=" + at("policy.yaml")},
		{"--audit-log-path=logs/audit.log", "audit-log-path=" + at("logs/audit.log")},
		{"audit-log-path=-", "audit-log-path=-"},
		{"audit-log-path=", "audit-log-path="},
		{"audit-log-path=/a", "audit-log-path=/a"},
		{"tls-sni-cert-key=a.crt,a.key:*.example.com,b", "tls-sni-cert-key=" + at("a.crt") + "," + at("a.key") + ":*.example.com,b"},
		{"anonymous-auth=false", "anonymous-auth=false"},
		{"profiling", "profiling"},
		{"anonymous-auth-", "anonymous-auth-"},
		{"nothere-", ""},
		{"nothere=1", ""},
		{"-", ""},
		{"", ""},
	} {
		got, err := Given("apiserver", []string{test.given})
		if test.want == "" {
			if err == nil {
				t.Errorf("%q was taken: %v", test.given, got)
			}
		} else if err != nil || got[0] != test.want {
			t.Errorf("%q: %v, %v, want %q", test.given, got, err, test.want)
		}
	}
}
