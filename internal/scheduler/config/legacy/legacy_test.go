package legacy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	kubescheduler "k8s.io/kube-scheduler/config/v1"
)

// show applies a policy and writes the changes of the one profile.
func show(t *testing.T, policy string) string {
	t.Helper()
	p, err := DecodePolicy([]byte("apiVersion: v1\nkind: Policy\n" + policy))
	if err != nil {
		return err.Error()
	}
	cfg := &kubescheduler.KubeSchedulerConfiguration{}
	if err := p.Apply(cfg); err != nil {
		return err.Error()
	}
	var out []string
	set := func(name string, s kubescheduler.PluginSet) {
		for _, one := range s.Enabled {
			if one.Weight != nil {
				out = append(out, fmt.Sprintf("%s+%s*%d", name, one.Name, *one.Weight))
			} else {
				out = append(out, name+"+"+one.Name)
			}
		}
		for _, one := range s.Disabled {
			out = append(out, name+"-"+one.Name)
		}
	}
	plugins := cfg.Profiles[0].Plugins
	set("filter", plugins.Filter)
	set("score", plugins.Score)
	set("multi", plugins.MultiPoint)
	for _, c := range cfg.Profiles[0].PluginConfig {
		out = append(out, c.Name+"="+string(c.Args.Raw))
	}
	return strings.Join(out, " ")
}

// Each predicate keeps its filters on where a list turns the others off.
func TestPredicates(t *testing.T) {
	for predicate, want := range map[string]string{
		"PodFitsResources": "NodeResourcesFit", "GeneralPredicates": "NodeResourcesFit NodeName NodePorts NodeAffinity", "HostName": "NodeName",
		"PodFitsHostPorts": "NodePorts", "PodFitsPorts": "NodePorts", "MatchNodeSelector": "NodeAffinity", "CheckNodeUnschedulable": "", "CheckNodeCondition": "",
		"PodToleratesNodeTaints": "", "PodToleratesNodeNoExecuteTaints": "", "CheckNodeMemoryPressure": "", "CheckNodeDiskPressure": "", "CheckNodePIDPressure": "",
		"MatchInterPodAffinity": "InterPodAffinity", "EvenPodsSpread": "PodTopologySpread", "NoDiskConflict": "VolumeRestrictions",
		"NoVolumeZoneConflict": "VolumeZone", "MaxCSIVolumeCountPred": "NodeVolumeLimits", "MaxEBSVolumeCount": "NodeVolumeLimits",
		"MaxGCEPDVolumeCount": "NodeVolumeLimits", "MaxAzureDiskVolumeCount": "NodeVolumeLimits", "MaxCinderVolumeCount": "NodeVolumeLimits",
		"CheckVolumeBinding": "VolumeBinding", "NoVolumeNodeConflict": "VolumeBinding",
	} {
		got := show(t, "predicates: [{name: "+predicate+"}]\n")
		for _, filter := range filters() {
			kept := !slices.Contains(strings.Fields(got), "filter-"+filter)
			if wanted := slices.Contains(mandatory(), filter) || slices.Contains(strings.Fields(want), filter); kept != wanted {
				t.Errorf("%s: filter %s is on: %t, want %t", predicate, filter, kept, wanted)
			}
		}
	}
}

func TestPriorities(t *testing.T) {
	for priority, want := range map[string]string{
		"LeastRequestedPriority": "NodeResourcesFit", "MostRequestedPriority": "NodeResourcesFit", "RequestedToCapacityRatioPriority": "NodeResourcesFit",
		"BalancedResourceAllocation": "NodeResourcesBalancedAllocation", "SelectorSpreadPriority": "SelectorSpread", "ServiceSpreadingPriority": "SelectorSpread",
		"CalculateAntiAffinityPriority": "ServiceAffinity", "ImageLocalityPriority": "ImageLocality", "NodeAffinityPriority": "NodeAffinity",
		"InterPodAffinityPriority": "InterPodAffinity", "NodePreferAvoidPodsPriority": "NodePreferAvoidPods", "TaintTolerationPriority": "TaintToleration",
		"EvenPodsSpreadPriority": "PodTopologySpread", "EqualPriority": "",
	} {
		got := strings.Fields(show(t, "priorities: [{name: "+priority+", weight: 7}]\n"))
		if short := show(t, "priorities: [{name: "+strings.TrimSuffix(priority, "Priority")+", weight: 7}]\n"); short != strings.Join(got, " ") {
			t.Errorf("%s without Priority: %s, want %v", priority, short, got)
		}
		if want != "" && !slices.Contains(got, "multi+"+want+"*7") {
			t.Errorf("%s: %v, want %s with weight 7", priority, got, want)
		}
		for _, score := range scores() {
			if off := slices.Contains(got, "score-"+score); off == (score == want) {
				t.Errorf("%s: score %s is off: %t", priority, score, off)
			}
		}
	}
}

func TestPolicies(t *testing.T) {
	for policy, want := range map[string]string{
		"":                 "",
		"predicates: []\n": "filter-NodeName filter-NodeAffinity filter-NodePorts filter-NodeResourcesFit filter-VolumeRestrictions filter-NodeVolumeLimits filter-VolumeBinding filter-VolumeZone filter-PodTopologySpread filter-InterPodAffinity",
		"predicates: [{name: Magic}]\npriorities: [{name: Luck, weight: 1}, {name: EqualPriority, weight: 0}]\n": "predicate type not found for \"Magic\"\npriority type not found for \"Luck\"\npriority EqualPriority should have a positive weight applied to it or it has overflown",
		"predicates: [{name: x, argument: {}}]\n":                                                             "exactly 1 predicate argument is required for predicate \"x\"",
		"priorities: [{name: x, weight: 1, argument: {}}]\n":                                                  "exactly 1 priority argument is required for priority \"x\"",
		"priorities: [{name: LeastRequestedPriority, weight: 1}, {name: MostRequestedPriority, weight: 3}]\n": "score-TaintToleration score-NodeAffinity score-VolumeBinding score-PodTopologySpread score-InterPodAffinity score-NodeResourcesBalancedAllocation score-ImageLocality multi+NodeResourcesFit*1 multi+NodeResourcesMostAllocated*3 NodeResourcesFit= NodeResourcesMostAllocated={\"type\":\"MostAllocated\"}",
		"hardPodAffinitySymmetricWeight: 101\n":                                                               "hardPodAffinitySymmetricWeight: invalid value 101: not in valid range [0, 100]",
		"colour: red\n":                                                                                       "invalid policy: unknown field \"colour\"",
		"extenders: [{urlPrefix: http://a, prioritizeVerb: p}]\n":                                             "priority for extender http://a should have a positive weight applied to it",
	} {
		if got := show(t, policy); got != want {
			t.Errorf("%s\n got %s\nwant %s", policy, got, want)
		}
	}
	got := show(t, `
predicates:
- {name: zones, argument: {serviceAffinity: {labels: [zone]}}}
- {name: retiring, argument: {labelsPresence: {labels: [retiring], presence: false}}}
priorities:
- {name: racks, weight: 2, argument: {serviceAntiAffinity: {label: rack}}}
- {name: fast, weight: 3, argument: {labelPreference: {label: ssd, presence: true}}}
hardPodAffinitySymmetricWeight: 10
`)
	for _, want := range []string{
		"multi+NodeLabel*3", "multi+ServiceAffinity*2", `NodeLabel={"absentLabels":["retiring"],"presentLabelsPreference":["ssd"]}`,
		`ServiceAffinity={"affinityLabels":["zone"],"antiAffinityLabelsPreference":["rack"]}`, "InterPodAffinity=",
	} {
		if !slices.Contains(strings.Fields(got), want) {
			t.Errorf("%s is missing in %s", want, got)
		}
	}
}

// The example of a policy with an extender that Kubernetes had.
func TestExtenderWithVersion(t *testing.T) {
	got := show(t, `
predicates: [{name: PodFitsHostPorts}, {name: PodFitsResources}, {name: NoDiskConflict}, {name: NoVolumeZoneConflict}, {name: MatchNodeSelector}, {name: HostName}]
priorities: [{name: LeastRequestedPriority, weight: 1}, {name: BalancedResourceAllocation, weight: 1}, {name: ServiceSpreadingPriority, weight: 1}, {name: EqualPriority, weight: 1}]
extenders: [{urlPrefix: "http://127.0.0.1:12346/scheduler", apiVersion: v1beta1, filterVerb: filter, prioritizeVerb: prioritize, weight: 5, enableHttps: false, nodeCacheCapable: false}]
hardPodAffinitySymmetricWeight: 10
`)
	if want := "multi+NodeResourcesBalancedAllocation*1"; !slices.Contains(strings.Fields(got), want) {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestAlgorithmSource(t *testing.T) {
	const older = "apiVersion: componentconfig/v1alpha1\nkind: KubeSchedulerConfiguration\n"
	if !IsAlgorithmSource([]byte(older)) || IsAlgorithmSource([]byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")) {
		t.Error("the versions with algorithmSource are not told from the others")
	}
	cfg, policy, warnings, err := DecodeAlgorithmSource([]byte(older + "schedulerName: mine\ndisablePreemption: true\nbindTimeoutSeconds: 30\nhealthzBindAddress: 0.0.0.0:1\nleaderElection: {leaderElect: true, lockObjectName: lock}\nalgorithmSource: {policy: {configMap: {namespace: ns, name: policy}}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if *cfg.Profiles[0].SchedulerName != "mine" || cfg.LeaderElection.ResourceName != "lock" || policy.ConfigMap.Name != "policy" || !slices.Equal(warnings, []string{"healthzBindAddress has no effect"}) {
		t.Errorf("%+v %+v %q", cfg, policy, warnings)
	}
	binding := cfg.Profiles[0].PluginConfig[0]
	if a, ok := binding.Args.Object.(*kubescheduler.VolumeBindingArgs); !ok || binding.Name != "VolumeBinding" || *a.BindTimeoutSeconds != 30 {
		t.Errorf("bindTimeoutSeconds became %+v", binding)
	}
	if err := (&Policy{}).Apply(cfg); err != nil || len(cfg.Profiles[0].Plugins.PostFilter.Disabled) != 1 {
		t.Errorf("the policy has turned preemption on again: %v", err)
	}
	for source, want := range map[string]string{
		"{provider: Nobody}":                      `invalid algorithm provider "Nobody"`,
		"{provider: DefaultProvider, policy: {}}": "choose one of them",
		"{policy: {}}":                            "exactly one of file and configMap is required",
		"{magic: 1}":                              `unknown field "algorithmSource.magic"`,
	} {
		if _, _, _, err := DecodeAlgorithmSource([]byte(older + "algorithmSource: " + source)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
}

// names lists a set of plugins as "+enabled*weight -disabled".
func names(s kubescheduler.PluginSet) string {
	var out []string
	for _, p := range s.Enabled {
		text := "+" + p.Name
		if p.Weight != nil {
			text += fmt.Sprint("*", *p.Weight)
		}
		out = append(out, text)
	}
	for _, p := range s.Disabled {
		out = append(out, "-"+p.Name)
	}
	return strings.Join(out, " ")
}

// Changes to single plugins are added to those of the provider or the policy.
func TestPluginsOfAlgorithmSource(t *testing.T) {
	const older = "apiVersion: kubescheduler.config.k8s.io/v1alpha1\nkind: KubeSchedulerConfiguration\n"
	cfg, _, warnings, err := DecodeAlgorithmSource([]byte(older + `
algorithmSource: {provider: DefaultProvider}
disablePreemption: true
plugins:
  queueSort: {enabled: [{name: PrioritySort}]}
  filter: {disabled: [{name: NodePorts}]}
  postFilter: {enabled: [{name: ImageLocality}]}
  score: {enabled: [{name: ImageLocality, weight: 5}], disabled: [{name: InterPodAffinity}]}
  reserve: {enabled: [{name: VolumeBinding}]}
  unreserve: {enabled: [{name: VolumeBinding}], disabled: [{name: DynamicResources}]}
pluginConfig:
- {name: NodeResourcesFit, args: {ignoredResources: [example.com/a]}}
- {name: NodeLabel, args: {presentLabels: [x]}}
`))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	check := func(wanted map[string]string) {
		t.Helper()
		p := cfg.Profiles[0].Plugins
		for point, set := range map[string]kubescheduler.PluginSet{
			"queueSort": p.QueueSort, "filter": p.Filter, "postFilter": p.PostFilter, "preScore": p.PreScore, "score": p.Score, "reserve": p.Reserve,
		} {
			if want, ok := wanted[point]; ok && names(set) != want {
				t.Errorf("%s: %s, want %s", point, names(set), want)
			}
		}
	}
	check(map[string]string{
		"queueSort": "+PrioritySort", "filter": "-NodePorts", "postFilter": "-DefaultPreemption", "preScore": "+ImageLocality",
		"score": "+ImageLocality*5 -InterPodAffinity", "reserve": "+VolumeBinding -DynamicResources",
	})
	if a, ok := cfg.Profiles[0].PluginConfig[0].Args.Object.(*kubescheduler.NodeResourcesFitArgs); !ok || !slices.Equal(a.IgnoredResources, []string{"example.com/a"}) {
		t.Errorf("arguments %+v", cfg.Profiles[0].PluginConfig)
	}
	policy := &Policy{Predicates: []Predicate{{Name: "PodFitsHostPorts"}}, Priorities: []Priority{{Name: "EqualPriority", Weight: 1}}}
	if err := policy.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	check(map[string]string{"postFilter": "-DefaultPreemption", "reserve": "+VolumeBinding -DynamicResources"})
	p := cfg.Profiles[0].Plugins
	if got := names(p.Score); !strings.HasPrefix(got, "+ImageLocality*5 -") || !strings.Contains(got, "-NodeAffinity") {
		t.Errorf("with a policy without scores: %s", got)
	}
	if got := names(p.Filter); !strings.HasSuffix(got, " -NodePorts") {
		t.Errorf("with a policy that has the predicate: %s", got)
	}
}

// What cannot be read, or is said in two ways, is refused.
func TestRefusalsOfAlgorithmSource(t *testing.T) {
	const older = "apiVersion: kubescheduler.config.k8s.io/v1alpha1\nkind: KubeSchedulerConfiguration\nalgorithmSource: {provider: DefaultProvider}\n"
	for text, want := range map[string]string{
		"pluginConfig: [{name: NodeName}, {name: NodeResourcesFit, args: {ignored: [a]}}]": `pluginConfig[1]: decoding args for plugin NodeResourcesFit: strict decoding error: unknown field "ignored"`,
		"pluginConfig: [{name: NodeResourcesFit, args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: VolumeBindingArgs}}]": "pluginConfig[0]: args for plugin NodeResourcesFit were not of type NodeResourcesFitArgs.kubescheduler.config.k8s.io, " +
			"got VolumeBindingArgs.kubescheduler.config.k8s.io",
		"pluginConfig: [{name: NodeLabel, args: {kind: Magic}}]": `no kind "Magic" is registered`,
		"plugins: {preScore: {}}":                                `unknown field "plugins.preScore"`, // postFilter then
		"leaderElection: {resourceName: a, lockObjectName: b}":   "ResourceName and LockObjectName are both set and do not match, ResourceName: a, LockObjectName: b",
	} {
		if _, _, _, err := DecodeAlgorithmSource([]byte(older + text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	cfg, _, _, err := DecodeAlgorithmSource([]byte(older + "pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [example.com/a]}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	const both = `the policy and pluginConfig both have arguments of plugin "NodeResourcesFit": choose one of them`
	if err := (&Policy{Priorities: []Priority{{Name: "MostRequestedPriority", Weight: 1}}}).Apply(cfg); err == nil || err.Error() != both {
		t.Errorf("%v, want %s", err, both)
	}
}
