package component

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// Flags and gates that have no effect are accepted, and said to have none.
func TestControllerFlagsThatHaveNoEffectSaySo(t *testing.T) {
	m := NewControllerManager()
	m.ignored.VisitAll(func(f *pflag.Flag) {
		if !strings.HasPrefix(f.Usage, "has no effect: ") {
			t.Errorf("--%s does not say that it has no effect", f.Name)
		}
	})
	flags := pflag.NewFlagSet("controller-manager", pflag.ContinueOnError)
	m.AddFlags(flags)
	if err := flags.Parse([]string{"--cluster-name=a", "--feature-gates=WatchList=false,JobManagedBy=true,PodDeletionCost=false,QOSReserved=true,OpenAPIEnums=false", "--cloud-provider=external"}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Setting GA feature gate JobManagedBy=true. It will be removed in a future release.",
		"Setting feature gate OpenAPIEnums=false has no effect.",
		"Setting feature gate QOSReserved=true has no effect: there is no such feature here.",
		"--feature-gates: JobManagedBy has no effect here: set it at the API server",
		"--feature-gates: WatchList has no effect here: set it at the API server",
		"--cluster-name has no effect: no cloud provider is built in",
	}
	if got := m.warnings(); !slices.Equal(got, want) {
		t.Errorf("warnings %q, want %q", got, want)
	}
}

// A flag that a controller cannot work with is refused before anything starts.
func TestControllerFlagsAreValidated(t *testing.T) {
	for _, test := range []struct{ flags, want string }{
		{"--controllers=*", ""},
		{"--horizontal-pod-autoscaler-sync-period=0s", "--horizontal-pod-autoscaler-sync-period must be above 0"},
		{"--horizontal-pod-autoscaler-tolerance=-1", "--horizontal-pod-autoscaler-tolerance must not be below 0"},
		{"--feature-gates=NodeLogQuery=true,AllAlpha=true,GenericWorkload=true", ""},
		{"--feature-gates=WorkloadWithJob=true", "WorkloadWithJob is enabled, but depends on features that are disabled: [GenericWorkload]"},
		{"--feature-gates=NoSuchGate=true", "unrecognized feature gate: NoSuchGate"},
		{"--cloud-provider=external", ""},
		{"--cloud-provider=aws", "--cloud-provider=aws: no cloud provider is built in: use external"},
		{"--controllers=nobody", `"nobody" is not in the list of known controllers`},
		{"--allocate-node-cidrs", "--allocate-node-cidrs needs --cluster-cidr"},
		{"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16", ""},
		{"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16,fd00::/56 --node-cidr-mask-size=24", "--node-cidr-mask-size is not allowed with dual-stack"},
		{"--cluster-signing-cert-file=ca.crt", "--cluster-signing-key-file must both be given"},
		{"--cluster-signing-cert-file=ca.crt --cluster-signing-key-file=ca.key", ""},
		{"--cluster-signing-kubelet-client-key-file=a.key", "--cluster-signing-kubelet-client-cert-file and --cluster-signing-kubelet-client-key-file must both be given"},
		{"--cluster-signing-kubelet-client-cert-file=a.crt --cluster-signing-kubelet-client-key-file=a.key", ""},
		{"--cluster-signing-cert-file=ca.crt --cluster-signing-key-file=ca.key --cluster-signing-legacy-unknown-cert-file=a.crt --cluster-signing-legacy-unknown-key-file=a.key", "--cluster-signing-legacy-unknown-cert-file and --cluster-signing-cert-file must not both be given"},
		{"--max-endpoints-per-slice=1001", "--max-endpoints-per-slice must not be more than 1000, but got 1001"},
		{"--concurrent-service-endpoint-syncs=0", "--concurrent-service-endpoint-syncs must not be less than 1, but got 0"},
		{"--mirroring-max-endpoints-per-subset=0", "--mirroring-max-endpoints-per-subset must not be less than 1, but got 0"},
		{"--mirroring-concurrent-service-endpoint-syncs=51", "--mirroring-concurrent-service-endpoint-syncs must not be more than 50, but got 51"},
	} {
		m := NewControllerManager()
		flags := pflag.NewFlagSet("controller-manager", pflag.ContinueOnError)
		m.AddFlags(flags)
		if err := flags.Parse(strings.Fields(test.flags)); err != nil {
			t.Fatal(err)
		}
		switch err := m.Validate(); {
		case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %s", test.flags, err, test.want)
		}
	}
}

// The file of --root-ca-file comes before the authority of the cluster.
func TestRootCAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte("given"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ file, want string }{{"", "own"}, {file, "given"}, {file + ".missing", "--root-ca-file: open " + file + ".missing: no such file or directory"}} {
		m := NewControllerManager()
		m.RootCAFile, m.RootCA = test.file, []byte("own")
		got, err := m.rootCA()
		if err != nil {
			got = []byte(err.Error())
		}
		if string(got) != test.want {
			t.Errorf("--root-ca-file=%s: %q, want %q", test.file, got, test.want)
		}
	}
}
