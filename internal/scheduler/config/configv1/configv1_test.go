package configv1

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kubescheduler "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/scheduler/config"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/all"
)

const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

// load runs a file through all stages.
func load(text string) (config.Configuration, []string, error) {
	cfg, err := Decode([]byte(text))
	if err != nil {
		return config.Configuration{}, nil, err
	}
	SetDefaults(cfg, all.Registry())
	if err := Validate(cfg, all.Registry()); err != nil {
		return config.Configuration{}, nil, err
	}
	var out config.Configuration
	warnings, err := Convert(cfg, all.Registry(), &out)
	return out, warnings, err
}

func TestDefaults(t *testing.T) {
	got, warnings, err := load(head)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if len(got.Profiles) != 1 || got.Profiles[0].SchedulerName != "default-scheduler" {
		t.Errorf("profiles %+v, want one named default-scheduler", got.Profiles)
	}
	got.Profiles = nil
	want := config.Configuration{PodInitialBackoff: time.Second, PodMaxBackoff: 10 * time.Second}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A back-off of more seconds than a Duration holds is the longest one.
func TestLongBackoff(t *testing.T) {
	got, _, err := load(head + "podInitialBackoffSeconds: 10000000000\npodMaxBackoffSeconds: 20000000000\n")
	if err != nil || got.PodInitialBackoff != math.MaxInt64 || got.PodMaxBackoff != math.MaxInt64 {
		t.Errorf("%v, %v, %v", got.PodInitialBackoff, got.PodMaxBackoff, err)
	}
}

func TestConvert(t *testing.T) {
	got, warnings, err := load(head + `
parallelism: 4
percentageOfNodesToScore: 70
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 30
profiles:
- schedulerName: default-scheduler
- schedulerName: packer
  percentageOfNodesToScore: 100
  plugins:
    multiPoint:
      enabled: [{name: ImageLocality, weight: 7}]
      disabled: [{name: PodTopologySpread}]
    score:
      disabled: [{name: "*"}]
      enabled: [{name: NodeAffinity, weight: 5}]
    filter: {enabled: [{name: PodGroupCount}]}
    placementScore: {enabled: [{name: Any}]}
  pluginConfig:
  - name: DefaultPreemption
    args: {minCandidateNodesAbsolute: 3}
extenders:
- urlPrefix: https://127.0.0.1:1/x
  filterVerb: filter
  enableHTTPS: true
  httpTimeout: 2s
  managedResources: [{name: example.com/gpu, ignoredByScheduler: true}]
`)
	if err != nil {
		t.Fatal(err)
	}
	p := got.Profiles[1]
	want := config.Plugins{
		MultiPoint: config.PluginSet{Enabled: []config.Plugin{{Name: "ImageLocality", Weight: 7}}, Disabled: []string{"PodTopologySpread"}},
		Score:      config.PluginSet{Enabled: []config.Plugin{{Name: "NodeAffinity", Weight: 5}}, Disabled: []string{"*"}},
		Filter:     p.Plugins.Filter,
	}
	if d := cmp.Diff(want, p.Plugins); d != "" {
		t.Error(d)
	}
	if ptr.Deref(p.PercentageOfNodesToScore, 0) != 100 || got.PercentageOfNodesToScore != 70 || got.PodMaxBackoff != 30*time.Second {
		t.Errorf("settings %+v", got)
	}
	e := got.Extenders[0]
	if e.HTTPTimeout != 2*time.Second || len(e.ManagedResources) != 1 || !e.ManagedResources[0].IgnoredByScheduler {
		t.Errorf("extender %+v", e)
	}
	for _, want := range []string{"profiles[1].plugins.placementScore has no effect", "extenders[0].tlsConfig names no authority"} {
		if !strings.Contains(strings.Join(warnings, "\n"), want) {
			t.Errorf("warnings %q, want %s", warnings, want)
		}
	}
	for _, p := range got.Profiles {
		if fit, ok := arguments(p, "NodeResourcesFit").(*kubescheduler.NodeResourcesFitArgs); !ok || !slices.Equal(fit.IgnoredResources, []string{"example.com/gpu"}) {
			t.Errorf("%s: the resource that the extender manages alone is not ignored: %+v", p.SchedulerName, fit)
		}
	}
	preemption := &kubescheduler.DefaultPreemptionArgs{MinCandidateNodesPercentage: ptr.To[int32](10), MinCandidateNodesAbsolute: ptr.To[int32](3)}
	if d := cmp.Diff(preemption, arguments(p, "DefaultPreemption")); d != "" {
		t.Errorf("want the given arguments with defaults for the rest:\n%s", d)
	}
}

// Arguments of a plugin that upstream does not have get the plugin's defaults,
// whether the file says something of them or not.
func TestOwnArguments(t *testing.T) {
	shape := []kubescheduler.UtilizationShapePoint{{Utilization: 0, Score: 10}, {Utilization: 100, Score: 0}}
	for file, want := range map[string]kubescheduler.ScoringStrategy{
		"": {Resources: []kubescheduler.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}}},
		", args: {resources: [{name: example.com/gpu}]}": {Resources: []kubescheduler.ResourceSpec{{Name: "example.com/gpu", Weight: 1}}},
	} {
		got, _, err := load(head + "profiles: [{pluginConfig: [{name: RequestedToCapacityRatio" + file + "}]}]\n")
		if err != nil {
			t.Fatal(err)
		}
		want.Type, want.RequestedToCapacityRatio = kubescheduler.RequestedToCapacityRatio, &kubescheduler.RequestedToCapacityRatioParam{Shape: shape}
		if d := cmp.Diff(&want, arguments(got.Profiles[0], "RequestedToCapacityRatio")); d != "" {
			t.Errorf("%q: %s", file, d)
		}
	}
}

func arguments(p config.Profile, name string) any {
	for _, c := range p.PluginConfig {
		if c.Name == name {
			return c.Args
		}
	}
	return nil
}

func TestRefusals(t *testing.T) {
	profile := func(rest string) string { return head + "profiles:\n- schedulerName: a\n" + rest }
	args := func(name, a string) string {
		return profile("  pluginConfig:\n  - name: " + name + "\n    args: " + a + "\n")
	}
	for name, test := range map[string]struct {
		file string
		want []string
	}{
		"not YAML":         {"{", []string{"yaml"}},
		"another kind":     {"apiVersion: v1\nkind: Pod\n", []string{`no kind "Pod" is registered for version "v1"`}},
		"an older version": {strings.Replace(head, "/v1", "/v1beta3", 1), []string{`no kind "KubeSchedulerConfiguration" is registered for version "kubescheduler.config.k8s.io/v1beta3"`}},
		"unknown fields, all at once": {profile("  colour: red\n  pluginConfig:\n  - name: DefaultPreemption\n    args: {minimum: 1}\n") + "size: 1\n",
			[]string{"strict decoding error", `unknown field "profiles[0].colour"`, `unknown field "size"`, "decoding .profiles[0].pluginConfig[0]", `unknown field "minimum"`}},
		"a field twice": {head + "parallelism: 1\nparallelism: 2\n", []string{`key "parallelism" already set in map`}},
		"arguments of another plugin": {args("DefaultPreemption", "{apiVersion: kubescheduler.config.k8s.io/v1, kind: InterPodAffinityArgs}"),
			[]string{"args for plugin DefaultPreemption were not of type DefaultPreemptionArgs.kubescheduler.config.k8s.io, got InterPodAffinityArgs.kubescheduler.config.k8s.io"}},
		"settings, all at once": {head + "parallelism: 0\npercentageOfNodesToScore: 101\npodInitialBackoffSeconds: 0\npodMaxBackoffSeconds: -1\nleaderElection: {resourceLock: endpoints, leaseDuration: 1s}\nclientConnection: {burst: -1}\n",
			[]string{
				"parallelism: Invalid value: 0: should be an integer value greater than zero", "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
				"podInitialBackoffSeconds: Invalid value: 0: must be greater than 0", "podMaxBackoffSeconds: Invalid value: -1: must be greater than or equal to PodInitialBackoffSeconds",
				`leaderElection.resourceLock: Invalid value: "endpoints": resourceLock value must be "leases"`, "must be greater than `RenewDeadline`",
				"clientConnection.burst: Invalid value: -1: must be non-negative",
			}},
		"profiles without names": {head + "profiles: [{}, {}]\n", []string{"profiles[0].schedulerName: Required value", `profiles[1].schedulerName: Duplicate value: "profiles[0].schedulerName"`}},
		"one name twice":         {head + "profiles: [{schedulerName: a}, {schedulerName: a}]\n", []string{`profiles[1].schedulerName: Duplicate value: "profiles[0].schedulerName"`}},
		"two orders of the queue": {head + "profiles: [{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {enabled: [{name: Other}]}}}]\n",
			[]string{"profiles[1].plugins.queueSort: Invalid value", "has to match for all profiles"}},
		"a removed plugin": {profile("  plugins: {filter: {enabled: [{name: EBSLimits}]}}\n"),
			[]string{`profiles[0].plugins.filter.enabled[0]: Invalid value: "EBSLimits": was invalid in version "kubescheduler.config.k8s.io/v1"`}},
		"unknown plugins": {profile("  plugins: {filter: {enabled: [{name: Nobody}]}, multiPoint: {enabled: [{name: Someone}]}}\n"),
			[]string{`filter plugin "Nobody" does not exist`, `multiPoint plugin "Someone" does not exist`}},
		"a plugin twice":   {profile("  plugins: {score: {enabled: [{name: NodeAffinity}, {name: NodeAffinity}]}}\n"), []string{`plugin "NodeAffinity" already registered as "score"`}},
		"arguments twice":  {profile("  pluginConfig: [{name: NodeAffinity}, {name: NodeAffinity}]\n"), []string{`profiles[0].pluginConfig[1]: Duplicate value: "NodeAffinity"`}},
		"preemption":       {args("DefaultPreemption", "{minCandidateNodesPercentage: 101, minCandidateNodesAbsolute: -1}"), []string{"profiles[0].pluginConfig[0].args.minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]", "Invalid value: -1: not in valid range [0, inf)"}},
		"no candidates":    {args("DefaultPreemption", "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}"), []string{"cannot be zero at the same time as minCandidateNodesAbsolute"}},
		"affinity weight":  {args("InterPodAffinity", "{hardPodAffinityWeight: 101}"), []string{"hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"}},
		"binding timeout":  {args("VolumeBinding", "{bindTimeoutSeconds: -1}"), []string{"invalid BindTimeoutSeconds, should not be a negative value"}},
		"scoring strategy": {args("NodeResourcesFit", "{scoringStrategy: {type: Random, resources: [{name: cpu, weight: 101}]}}"), []string{`scoringStrategy.type: Unsupported value: "Random"`, "resource weight of cpu not in valid range (0, 100]"}},
		"shape": {args("NodeResourcesFit", "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: [{utilization: 5, score: 11}, {utilization: 5, score: 0}]}}}"),
			[]string{"shape[0].score: Invalid value: 11: not in valid range [0, 10]", "shape[1].utilization: Invalid value: 5: utilization values must be sorted in increasing order"}},
		"no shape":          {args("NodeResourcesFit", "{scoringStrategy: {type: RequestedToCapacityRatio}}"), []string{"shape: Required value: at least one point must be specified"}},
		"ignored resources": {args("NodeResourcesFit", "{ignoredResourceGroups: [a/b]}"), []string{"resource group name can't contain '/'"}},
		"balanced":          {args("NodeResourcesBalancedAllocation", "{resources: [{name: cpu, weight: 2}, {name: cpu, weight: 1}]}"), []string{"weight: Invalid value: 2: must be 1", `name: Duplicate value: "cpu"`}},
		"spread": {args("PodTopologySpread", "{defaultingType: System, defaultConstraints: [{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: Never, labelSelector: {}}]}"),
			[]string{`defaultingType: Invalid value: "System": when .defaultConstraints are not empty`, "maxSkew: Invalid value: 0: not in valid range (0, inf)", `whenUnsatisfiable: Unsupported value: "Never"`, "constraint must not define a selector, as they deduced for each pod"}},
		"added affinity": {args("NodeAffinity", "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Like}]}]}}}"), []string{"addedAffinity.requiredDuringSchedulingIgnoredDuringExecution", "Like"}},
		"arguments of a plugin that upstream does not have": {args("NodeLabel", "{presentLabels: [a, b], absentLabels: [b]}"), []string{`profiles[0].pluginConfig[0].args.presentLabels[1]: Invalid value: "b": is in absentLabels too`}},
		"fields that they do not have":                      {args("NodeLabel", "{colour: red}"), []string{`profiles[0].pluginConfig[0].args: decoding args for plugin NodeLabel: unknown field "colour"`}},
		"extenders": {head + "extenders:\n- {urlPrefix: http://a, prioritizeVerb: p, bindVerb: b, managedResources: [{name: cpu}]}\n- {urlPrefix: http://b, bindVerb: b}\n",
			[]string{"extenders[0].weight: Invalid value: 0: must have a positive weight applied to it", `extenders[0].managedResources[0].name: Invalid value: "cpu": is an invalid extended resource name`, `"found 2 extenders implementing bind": only one extender can implement bind`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := load(test.file)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v\nwant %s", err, want)
				}
			}
		})
	}
}

// The file that --write-config-to writes is read again as the same
// configuration.
func TestEncode(t *testing.T) {
	cfg, err := Decode([]byte(head + "profiles:\n- plugins: {multiPoint: {disabled: [{name: ImageLocality}], enabled: [{name: NodeAffinity, weight: 9}]}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	SetDefaults(cfg, all.Registry())
	data, err := Encode(Effective(cfg, all.Default(nil)))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Decode(data)
	if err != nil {
		t.Fatalf("%v in\n%s", err, data)
	}
	SetDefaults(again, all.Registry())
	second, err := Encode(Effective(again, all.Default(nil)))
	if d := cmp.Diff(string(data), string(second)); err != nil || d != "" {
		t.Error(err, d)
	}
	for _, want := range []string{"name: NodeAffinity\n        weight: 9", "minCandidateNodesPercentage: 10", "schedulerName: default-scheduler", "leaseDuration: 15s"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%q is missing in\n%s", want, data)
		}
	}
	if strings.Count(string(data), "name: ImageLocality") != 1 {
		t.Errorf("ImageLocality is not only among the disabled:\n%s", data)
	}
}
