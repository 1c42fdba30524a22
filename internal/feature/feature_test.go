package feature

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
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
		{"AllAlpha=true,GenericWorkload=true", "CBORServingAndStorage EvictionRequestAPI WatchList", "CoordinatedLeaderElection"},
		{"AllAlpha=true,AllBeta=true,CBORServingAndStorage=false", "EvictionRequestAPI GenericWorkload", "CBORServingAndStorage"},
		{"PodLevelResources=false,PodLevelResourcesFixDefaulting=false,PodLevelResourcesFixKubeletQOSClass=false,InPlacePodLevelResourcesVerticalScaling=false", "WatchList", "PodLevelResources"},
		{"TopologyAwareWorkloadScheduling=true,GenericWorkload=true,CompositePodGroup=true", "CompositePodGroup", "WorkloadWithJob"},
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
			if !s.Enabled(Gate(name)) {
				t.Errorf("%s: %s is off", c.gates, name)
			}
		}
		for _, name := range strings.Fields(c.off) {
			if s.Enabled(Gate(name)) {
				t.Errorf("%s: %s is on", c.gates, name)
			}
		}
	}
	var defaults *Set
	if !defaults.Enabled("WatchList") || defaults.Enabled("EventedPLEG") || defaults.Named() != nil || defaults.Warnings() != nil {
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
		{"AllAlpha=true", "--feature-gates: CompositePodGroup is enabled, but depends on features that are disabled: [GenericWorkload]; PodGroupPreemptionPolicy is enabled, but"},
		{"CompositePodGroup=true", "CompositePodGroup is enabled, but depends on features that are disabled: [GenericWorkload TopologyAwareWorkloadScheduling]"},
		{"ResourceHealthStatus=false", "ResourceHealthStatusMessage is enabled, but depends on features that are disabled: [ResourceHealthStatus]"},
		{"AllBeta=false,ResourceHealthStatusMessage=true", "ResourceHealthStatusMessage is enabled, but depends on features that are disabled: [ResourceHealthStatus]"},
	} {
		if _, err := Parse(strings.Split(c.gates, ",")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.gates, err)
		}
	}
}

// TestDependencies checks that gates depend on known ones that are no less stable
// and on by default if they are, as upstream does.
func TestDependencies(t *testing.T) {
	order := map[Stage]int{Deprecated: 0, Alpha: 1, Beta: 2, GA: 3}
	for name, needed := range dependencies() {
		g, ok := table()[name]
		if !ok || len(needed) == 0 || !slices.IsSorted(needed) {
			t.Errorf("%s depends on %v", name, needed)
		}
		for _, other := range needed {
			o, ok := table()[other]
			if !ok || order[o.stage] < order[g.stage] || g.on && !o.on || g.locked && g.on && !o.locked {
				t.Errorf("%s, %+v, depends on %s, %+v", name, g, other, o)
			}
		}
	}
	if len(dependencies()) < 30 {
		t.Errorf("only %d gates depend on others", len(dependencies()))
	}
}

func TestWarnings(t *testing.T) {
	s, err := Parse([]string{"KMSv1=true", "SELinuxMount=false", "WatchList=true", "EventedPLEG=true", "OpenAPIEnums=true", "QOSReserved=true", "ShardedListAndWatch=false", "AllAlpha=false"})
	if err != nil {
		t.Fatal(err)
	}
	want := "Setting deprecated feature gate KMSv1=true. It will be removed in a future release.\n" +
		"Setting GA feature gate SELinuxMount=false. It will be removed in a future release.\n" +
		"Setting feature gate EventedPLEG=true has no effect.\n" +
		"Setting feature gate QOSReserved=true has no effect: there is no such feature here.\nSetting feature gate SELinuxMount=false has no effect."
	if got := strings.Join(s.Warnings(), "\n"); got != want {
		t.Errorf("%s", got)
	}
}

// TestEffects checks that it is known of each gate who asks about it, or that nobody
// does.
func TestEffects(t *testing.T) {
	in := map[Gate][]string{}
	for name := range consulted(t) {
		in[name] = append(in[name], "consulted.go")
	}
	all := lists()
	for list, gates := range map[string]map[Gate]bool{"byLibraries": all.byLibraries, "missing": all.missing, "fixed": all.fixed} {
		for name := range gates {
			in[name] = append(in[name], list)
		}
	}
	for name, found := range in {
		g, ok := table()[name]
		switch {
		case !ok:
			t.Errorf("%s of %s is not in the table", name, found)
		case len(found) > 1:
			t.Errorf("%s is in %s", name, found)
		case g.on && all.missing[name]:
			t.Errorf("%s is on by default, and missing", name)
		}
	}
	for name, g := range table() {
		if !g.locked && in[name] == nil {
			t.Errorf("%s can be set, and is in no list: does it have an effect?", name)
		}
	}
}

// consulted returns the names in consulted.go.
func consulted(t *testing.T) map[Gate]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "consulted.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[Gate]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok {
			names[Gate(spec.Names[0].Name)] = true
		}
		return !ok
	})
	return names
}

// TestConstants checks that every constant of the type Gate is in the table.
func TestConstants(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "consulted.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		found++
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if _, ok := table()[Gate(value)]; err != nil || !ok || value != spec.Names[0].Name {
			t.Errorf("%s = %q is not in the table", spec.Names[0].Name, value)
		}
		return false
	})
	if found == 0 {
		t.Error("consulted.go has no constants")
	}
}

// TestLibraries compares the table with the gates of the k8s.io libraries.
func TestLibraries(t *testing.T) {
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if _, ok := stages()[Gate(name)]; ok {
			continue
		}
		want := gate{stage: Stage(spec.PreRelease), on: spec.Default, locked: spec.LockToDefault}
		if got, ok := table()[Gate(name)]; !ok || got != want {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
}
