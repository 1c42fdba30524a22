package component

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Each flag names a field of its kind. --help shows the default of the field, and
// that text, given as a value, sets the field.
func TestFieldFlags(t *testing.T) {
	k := NewKubelet()
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	k.AddFlags(fs)
	kinds := map[fieldKind]string{
		textField: "string", boolField: "bool", numberField: "int32", number64Field: "int64", durationField: "v1.Duration", listField: "[]string",
		mapField: "map[string]string", thresholdField: "map[string]string", boolMapField: "map[string]bool", headerField: "map[string][]string",
	}
	for _, f := range kubeletFields() {
		c := k.Config.Configuration.DeepCopy()
		field := fieldAt(reflect.ValueOf(c), f.field)
		if field.Kind() == reflect.Struct && field.NumField() > 1 {
			t.Errorf("--%s: there is no field %s", f.name, f.field)
			continue
		}
		of := strings.TrimPrefix(field.Type().String(), "*")
		if of != kinds[f.kind] && field.Kind() != reflect.String {
			t.Errorf("--%s: the field %s is a %s, the flag a %s", f.name, f.field, of, f.kind)
		}
		text := fs.Lookup(f.name).DefValue
		if text == "" {
			continue
		}
		if err := (&fieldValue{configuration: c, flag: f}).Set(text); err != nil {
			t.Errorf("--%s=%s, its default: %v", f.name, text, err)
		}
		if diff := cmp.Diff(&k.Config.Configuration, c); diff != "" {
			t.Errorf("--%s=%s, its default, changes the configuration (-want +got):\n%s", f.name, text, diff)
		}
		if err := (&fieldValue{configuration: c, flag: f}).Set("not a value"); err == nil && f.kind != textField && f.kind != listField {
			t.Errorf("--%s, a %s, accepts any text", f.name, f.kind)
		}
	}
}

// The values of flags have upstream's forms. A map replaces the map in the file,
// but feature gates are merged. A flag that is given several times adds to its
// lists and maps.
func TestValuesOfFieldFlags(t *testing.T) {
	k := kubeletWith(t, "--config=DIR/config.yaml --eviction-hard=memory.available<1Gi,nodefs.available<5% --eviction-hard=pid.available<9 --eviction-soft-grace-period=memory.available=1m30s "+
		"--manifest-url-header=a:b,a:c --manifest-url-header=d:e --cluster-dns=192.0.2.1,192.0.2.2 --fail-swap-on=False --register-node=0 --authorization-mode=AlwaysAllow "+
		"--cpu-manager-policy-options=full-pcpus-only=true --feature-gates=AllBeta=true --pod-max-pids=4294967296", map[string]string{
		"config.yaml": kubeletHead + "evictionHard: {imagefs.available: 1%}\ncpuManagerPolicyOptions: {strict-cpu-reservation: \"true\"}\nclusterDNS: [192.0.2.9]\nfeatureGates: {NodeSwap: true}\nauthorization: {webhook: {cacheAuthorizedTTL: 8m}}\n",
	})
	got, err := k.merged()
	if err != nil {
		t.Fatal(err)
	}
	want := NewKubelet().Config.Configuration.DeepCopy()
	want.TypeMeta = got.TypeMeta
	want.EvictionHard = map[string]string{"memory.available": "1Gi", "nodefs.available": "5%", "pid.available": "9"}
	want.EvictionSoftGracePeriod = map[string]string{"memory.available": "1m30s"}
	want.StaticPodURLHeader = map[string][]string{"a": {"b", "c"}, "d": {"e"}}
	want.ClusterDNS = []string{"192.0.2.1", "192.0.2.2"}
	want.FailSwapOn, want.RegisterNode, want.PodPidsLimit = new(false), new(false), new(int64(1<<32))
	want.CPUManagerPolicyOptions = map[string]string{"full-pcpus-only": "true"}
	want.FeatureGates = map[string]bool{"NodeSwap": true, "AllBeta": true}
	want.Authorization.Mode, want.Authorization.Webhook.CacheAuthorizedTTL.Duration = kubeletconfig.KubeletAuthorizationModeAlwaysAllow, 8*time.Minute
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
