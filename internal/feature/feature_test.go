package feature

import (
	"strings"
	"testing"

	_ "k8s.io/apiextensions-apiserver/pkg/features" // its gates are in the common set
	_ "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		gates, on, off string
	}{
		{"", "WatchList DRAAdminAccess KubeProxyIPVS", "CBORServingAndStorage GenericWorkload GitRepoVolumeDriver"},
		{"CBORServingAndStorage=true, WatchList = false,", "CBORServingAndStorage", "WatchList"},
		{"AllAlpha=true", "CBORServingAndStorage EvictionRequestAPI WatchList", "GenericWorkload"},
		{"AllAlpha=true,CBORServingAndStorage=false", "EvictionRequestAPI", "CBORServingAndStorage"},
		{"AllBeta=true", "GenericWorkload", "CBORServingAndStorage"},
		{"AllBeta=false,EnvFiles=true", "EnvFiles DRAAdminAccess", "WatchList GenericWorkload"},
		{"GitRepoVolumeDriver=false,DRAAdminAccess=true", "DRAAdminAccess", "GitRepoVolumeDriver"},
	} {
		s, err := Parse(strings.Split(c.gates, ","))
		if err != nil {
			t.Errorf("%s: %v", c.gates, err)
			continue
		}
		for _, name := range strings.Fields(c.on) {
			if !s.Enabled(name) {
				t.Errorf("%s: %s is off", c.gates, name)
			}
		}
		for _, name := range strings.Fields(c.off) {
			if s.Enabled(name) {
				t.Errorf("%s: %s is on", c.gates, name)
			}
		}
	}
	var defaults *Set
	if !defaults.Enabled("WatchList") || defaults.Enabled("EventedPLEG") || defaults.Given() != nil || defaults.Warnings() != nil {
		t.Error("nil is not the defaults")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ gates, want string }{
		{"Nope=true,WatchList=true,Neither=false", "unrecognized feature gate: Nope, Neither"},
		{"WatchList=maybe", "WatchList=maybe"},
		{"WatchList", "missing bool value for WatchList"},
		{"ImageVolume=false", "cannot set feature gate ImageVolume to false, feature is locked to true"},
		{"GitRepoVolumeDriver=true", "cannot set feature gate GitRepoVolumeDriver to true, feature is locked to false"},
	} {
		if _, err := Parse(strings.Split(c.gates, ",")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.gates, err)
		}
	}
}

func TestWarnings(t *testing.T) {
	s, err := Parse([]string{"KMSv1=true", "SELinuxMount=false", "WatchList=true"})
	if err != nil {
		t.Fatal(err)
	}
	want := "Setting deprecated feature gate KMSv1=true. It will be removed in a future release.\n" +
		"Setting GA feature gate SELinuxMount=false. It will be removed in a future release."
	if got := strings.Join(s.Warnings(), "\n"); got != want {
		t.Errorf("%s", got)
	}
}

// The gates that the libraries know are in the table, as the libraries have
// them.
func TestLibraries(t *testing.T) {
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if _, ok := stages[string(name)]; ok {
			continue
		}
		want := gate{stage: Stage(spec.PreRelease), on: spec.Default, locked: spec.LockToDefault}
		if got, ok := known[string(name)]; !ok || got != want {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
}
