package component

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/flagvalue"
)

// TestPathFlagsAreKnown checks that each flag whose name says that it is a path
// has that kind, because its value is relative to the directory in which it is
// given.
func TestPathFlagsAreKnown(t *testing.T) {
	others := []string{ // flags with such a name that are no paths
		"authorization-always-allow-paths", "runtime-config", "use-legacy-policy-config",
	}
	looks := regexp.MustCompile(`(^|-)(c?a?file|certfile|keyfile|dir|path|paths|cert|key|certificate|authority|config|kubeconfig|conf)$`)
	for _, addFlags := range []func(*pflag.FlagSet){
		apiserver.NewOptions().AddFlags, NewControllerManager().AddFlags, NewScheduler().AddFlags, NewKubelet().AddFlags, NewProxy().AddFlags,
		NewDNS().AddFlags, NewEtcd("").AddFlags,
	} {
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		addFlags(fs)
		fs.VisitAll(func(f *pflag.Flag) {
			paths := []flagvalue.Kind{flagvalue.Path, flagvalue.File, flagvalue.KeyPair}
			if looks.MatchString(f.Name) && !slices.Contains(others, f.Name) && !slices.Contains(paths, flagvalue.KindOf(f)) {
				t.Errorf("--%s (%s) may name a file: say so with flagvalue.Is where it is defined, or add it here", f.Name, f.Usage)
			}
		})
	}
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
		got, err := Given("apiserver", []string{test.given}, "")
		if test.want == "" {
			if err == nil {
				t.Errorf("%q was taken: %v", test.given, got)
			}
		} else if err != nil || got[0] != test.want {
			t.Errorf("%q: %v, %v, want %q", test.given, got, err, test.want)
		}
	}
}
