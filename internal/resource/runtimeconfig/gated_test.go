package runtimeconfig

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

var noon = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// kindOf returns the resource of that plural name.
func kindOf(t *testing.T, plural string) *resource.Resource {
	t.Helper()
	rs, err := Serve(all.All(), []string{"api/all=true"}, everything(t))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(rs, func(r *resource.Resource) bool { return r.Plural == plural })
	if i < 0 {
		t.Fatalf("no resource is called %s", plural)
	}
	return rs[i]
}

// object returns a defaulted object of the hub version from YAML.
func object(t *testing.T, r *resource.Resource, text string) resource.Object {
	t.Helper()
	obj := r.Hub().New()
	kind := obj.GetObjectKind().GroupVersionKind()
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(kind)
	obj.SetName("a")
	if r.Plural == "storageversions" {
		obj.SetName("apps.deployments")
	}
	if r.Namespaced {
		obj.SetNamespace("default")
	}
	r.Hub().Default(obj)
	return obj
}

const (
	groups  = `podGroupTemplates: [{name: g, schedulingPolicy: {basic: {}}}]`
	target  = `target: {pod: {name: p, uid: 0a1b2c3d-0000-4000-8000-000000000000}}`
	ownPods = `podGroupTemplates: [{name: g, schedulingPolicy: {basic: {}}, schedulingConstraints: {topology: [{key: rack}]}, preemptionPolicy: Never, resourceClaims: [{name: c, resourceClaimName: c}]}]`
)

// TestKinds checks creates, and updates of old. wrong lists the fields with
// errors.
func TestKinds(t *testing.T) {
	for _, c := range []struct{ plural, old, obj, wrong string }{
		{"workloads", "", `spec: {` + groups + `}`, ""},
		{"workloads", "", `spec: {` + ownPods + `}`, ""},
		{"workloads", "", `spec: {}`, "spec"},
		{"workloads", "", `spec: {podGroupTemplates: [{name: A_, schedulingPolicy: {}}]}`, "spec.podGroupTemplates[0].name spec.podGroupTemplates[0].schedulingPolicy"},
		{"workloads", "", `spec: {podGroupTemplates: [{name: g, schedulingPolicy: {gang: {minCount: 0}}}, {name: g, schedulingPolicy: {gang: {minCount: -1}}}]}`,
			"spec.podGroupTemplates[0].schedulingPolicy.gang.minCount spec.podGroupTemplates[1] spec.podGroupTemplates[1].schedulingPolicy.gang.minCount"},
		{"workloads", "", `spec: {podGroupTemplates: [{name: g, schedulingPolicy: {basic: {}}, priority: 1}, {name: h, schedulingPolicy: {basic: {}}}]}`, "spec"},
		{"workloads", "", `spec: {controllerRef: {apiGroup: B_, kind: a/b}, ` + groups + `}`, "spec.controllerRef.apiGroup spec.controllerRef.kind spec.controllerRef.name"},
		{"workloads", "", `spec: {compositePodGroupTemplates: [{name: c, schedulingPolicy: {basic: {}}}]}`, "spec.compositePodGroupTemplates[0]"},
		{"workloads", "", `spec: {compositePodGroupTemplates: [{name: c, schedulingPolicy: {basic: {}}, ` + strings.Replace(groups, "name: g", "name: c", 1) + `}]}`,
			"spec.compositePodGroupTemplates[0].podGroupTemplates[0].name"},
		{"workloads", `spec: {` + groups + `}`, `spec: {` + groups + `}`, ""},
		{"workloads", `spec: {` + groups + `}`, `spec: {podGroupTemplates: [{name: h, schedulingPolicy: {basic: {}}}]}`, "spec.podGroupTemplates spec.podGroupTemplates[0]"},
		{"workloads", `spec: {podGroupTemplates: [{name: g, schedulingPolicy: {gang: {minCount: 1}}}]}`, `spec: {podGroupTemplates: [{name: g, schedulingPolicy: {gang: {minCount: 2}}}]}`, ""},
		{"workloads", `spec: {` + groups + `}`, `spec: {` + ownPods + `}`,
			"spec.podGroupTemplates[0].preemptionPolicy spec.podGroupTemplates[0].resourceClaims spec.podGroupTemplates[0].schedulingConstraints"},
		{"podgroups", "", `spec: {schedulingPolicy: {gang: {minCount: 3}}}`, ""},
		{"podgroups", "", `spec: {schedulingPolicy: {gang: {minCount: 3}}, parentCompositePodGroupName: p, workloadRef: {workloadName: w, templateName: t}}`, ""},
		{"podgroups", "", `spec: {schedulingPolicy: {basic: {}, gang: {minCount: 3}}, parentCompositePodGroupName: p}`, "spec.schedulingPolicy spec.workloadRef"},
		{"podgroups", "", `spec: {schedulingPolicy: {basic: {}}, priority: 1000000001, preemptionPolicy: Maybe, disruptionMode: {single: {}, all: {}}}`,
			"spec.disruptionMode spec.preemptionPolicy spec.priority"},
		{"podgroups", `spec: {schedulingPolicy: {basic: {}}}`, `spec: {schedulingPolicy: {gang: {minCount: 1}}}`, "spec.schedulingPolicy.basic spec.schedulingPolicy.gang"},
		{"compositepodgroups", "", `spec: {schedulingPolicy: {gang: {minGroupCount: 2}}, workloadRef: {workloadName: w, templateName: t}}`, ""},
		{"compositepodgroups", "", `spec: {schedulingPolicy: {gang: {}}}`, "spec.schedulingPolicy.gang.minGroupCount spec.workloadRef"},
		{"compositepodgroups", `spec: {schedulingPolicy: {gang: {minGroupCount: 2}}, workloadRef: {workloadName: w, templateName: t}}`,
			`spec: {schedulingPolicy: {gang: {minGroupCount: 3}}, workloadRef: {workloadName: x, templateName: t}}`, "spec.schedulingPolicy spec.workloadRef"},
		{"evictionrequests", "", `spec: {` + target + `, requester: example.com/me, intent: Eviction}`, ""},
		{"evictionrequests", "", `spec: {` + target + `, requester: drain.k8s.io/me, intent: Later}`, "spec.intent spec.requester"},
		{"evictionrequests", "", `spec: {target: {}, requester: me, intent: ""}`, "spec.intent spec.requester spec.target"},
		{"evictionrequests", "", `spec: {target: {pod: {name: P_, uid: x}}, requester: example.com/me, intent: Eviction}`, "spec.target.pod.name spec.target.pod.uid"},
		{"evictionrequests", `spec: {` + target + `, requester: example.com/me, intent: Eviction}`, `spec: {` + target + `, requester: example.com/you, intent: Withdrawn}`, "spec.requester"},
		{"evictions", "", `spec: {` + target + `}`, ""},
		{"evictions", "", `spec: {target: {}}`, "spec.target"},
		{"evictions", `spec: {` + target + `}`, `spec: {target: {pod: {name: q, uid: 0a1b2c3d-0000-4000-8000-000000000000}}}`, "spec.target"},
		{"resourcepoolstatusrequests", "", `spec: {driver: gpu.example.com}`, ""},
		{"resourcepoolstatusrequests", "", `spec: {driver: "", poolName: a//b, limit: 1001, defaultPartitionTypeAttribute: x}`,
			"spec.defaultPartitionTypeAttribute spec.driver spec.limit spec.poolName"},
		{"resourcepoolstatusrequests", `spec: {driver: gpu.example.com}`, `spec: {driver: gpu.example.com, limit: 3}`, "spec"},
		{"storageversions", "", `spec: {}`, ""},
	} {
		r := kindOf(t, c.plural)
		request := &resource.RequestContext{Now: noon, Namespace: "default", Features: everything(t), GroupVersion: r.Hub().GroupVersion}
		obj := object(t, r, c.obj)
		errs := func() (fields []string) {
			if c.old == "" {
				for _, err := range resourcetest.BeforeCreate(r, request, obj) {
					fields = append(fields, err.Field)
				}
				return fields
			}
			old := object(t, r, c.old)
			resourcetest.BeforeCreate(r, request, old)
			old.SetResourceVersion("1")
			obj.SetResourceVersion("1")
			for _, err := range resourcetest.BeforeUpdate(r, request, obj, old) {
				fields = append(fields, err.Field)
			}
			return fields
		}()
		slices.Sort(errs)
		if got := strings.Join(errs, " "); got != c.wrong {
			t.Errorf("%s %s over %q: wrong is %q, want %q", c.plural, c.obj, c.old, got, c.wrong)
		}
	}
}

// TestStatuses checks the validation of status updates.
func TestStatuses(t *testing.T) {
	const start = `startTime: "2026-08-01T12:00:00Z"`
	for _, c := range []struct{ plural, old, status, wrong string }{
		{"storageversions", "", `{storageVersions: [{apiServerID: a, encodingVersion: apps/v1, decodableVersions: [apps/v1]}], commonEncodingVersion: apps/v1}`, ""},
		{"storageversions", "", `{storageVersions: [{apiServerID: a, encodingVersion: apps/v1}], commonEncodingVersion: v2}`,
			"status.commonEncodingVersion status.storageVersions[0].decodableVersions"},
		{"resourcepoolstatusrequests", "", `{poolCount: 1, pools: [{driver: d, poolName: p, generation: 1, totalDevices: 3}]}`, ""},
		{"resourcepoolstatusrequests", "", `{pools: [{driver: d, poolName: p, totalDevices: -3}]}`, "status.poolCount status.pools[0].totalDevices"},
		{"evictions", "", `{targetResponders: [{name: a.b/c, priority: 100, state: Active}], responders: [{name: a.b/c, ` + start + `}]}`, ""},
		{"evictions", "", `{targetResponders: [{name: a.b/c, priority: 100, state: Active}]}`, "status.responders status.targetResponders[0]"},
		{"evictions", "", `{targetResponders: [{name: a.b/c, priority: 100, state: Inactive}], responders: [{name: a.b/c}]}`, "status.targetResponders[0].state"},
		{"evictions", `{targetResponders: [{name: a.b/c, priority: 100, state: Active}], responders: [{name: a.b/c, ` + start + `}]}`,
			`{targetResponders: [{name: a.b/c, priority: 200, state: Inactive}], responders: [{name: a.b/c, ` + start + `}]}`,
			"status.targetResponders[0].priority status.targetResponders[0].state status.targetResponders[0].state"},
		{"evictions", `{targetResponders: [{name: a.b/c, priority: 100, state: Active}], responders: [{name: a.b/c, ` + start + `}]}`,
			`{targetResponders: [{name: a.b/c, priority: 100, state: Active}], responders: [{name: a.b/c, ` + start + `, completionTime: "2026-08-01T11:00:00Z"}]}`,
			"status.responders[0].completionTime"},
		{"evictions", `{observedGeneration: 2, conditions: [{type: Failed, status: "True", reason: R, message: m, lastTransitionTime: "2026-08-01T12:00:00Z"}]}`,
			`{observedGeneration: 1}`, "status.conditions status.observedGeneration"},
	} {
		r := kindOf(t, c.plural)
		spec := map[string]string{"evictions": `spec: {` + target + `}`, "resourcepoolstatusrequests": `spec: {driver: d}`, "storageversions": `spec: {}`}[c.plural]
		old := spec
		if c.old != "" {
			old += "\nstatus: " + c.old
		}
		before, obj := object(t, r, old), object(t, r, spec+"\nstatus: "+c.status)
		request := &resource.RequestContext{Now: noon, Features: everything(t), GroupVersion: r.Hub().GroupVersion}
		before.SetResourceVersion("1")
		obj.SetResourceVersion("1")
		var errs []string
		for _, err := range resourcetest.BeforeSubresourceUpdate(r, r.Subresource("status"), request, obj, before) {
			errs = append(errs, err.Field)
		}
		slices.Sort(errs)
		if got := strings.Join(errs, " "); got != c.wrong {
			t.Errorf("%s %s over %s: wrong is %q, want %q", c.plural, c.status, c.old, got, c.wrong)
		}
	}
}

// TestDroppedFields checks that the fields of disabled features are dropped,
// kept if they are stored, and kept if the features are enabled.
func TestDroppedFields(t *testing.T) {
	const pod = `containers: [{name: c, image: i, livenessProbe: {httpGet: {port: 1, protocol: HTTP2}}, readinessProbe: {grpc: {port: 1, mode: TLS}},
		volumeMounts: [{name: v, mountPath: /v, bindMountOptions: [noexec]}], lifecycle: {stopSignal: SIGTERM}}],
		volumes: [{name: v, emptyDir: {mode: 448}}, {name: s, secret: {secretName: s, defaultUser: 3, items: [{key: k, path: p, user: 4}]}}]`
	const responders = `evictionResponders: [{name: example.com/r, priority: 10000}]`
	for _, c := range []struct{ plural, obj, lost string }{
		{"pods", `spec: {os: {name: linux}, ` + pod + `, ` + responders + `}`,
			"bindMountOptions defaultUser evictionResponders lifecycle mode mode name priority protocol stopSignal user"},
		{"pods", `spec: {containers: [{name: c, image: i}], schedulingGroup: {podGroupName: g}}`, "podGroupName schedulingGroup"},
		{"jobs", `spec: {scheduling: {schedulingPolicy: {gang: {minCount: 2}}}, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}`, "gang minCount scheduling schedulingPolicy"},
		{"cronjobs", `spec: {schedule: "* * * * *", jobTemplate: {spec: {scheduling: {schedulingPolicy: {basic: {}}}, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}`, "basic scheduling schedulingPolicy"},
		{"nodes", `spec: {podPreemptionPolicy: {disableResizePreemption: [example.com/me]}}`, "disableResizePreemption podPreemptionPolicy"},
		{"resourceslices", `spec: {driver: d.example.com, nodeName: n, pool: {name: p, generation: 1, resourceSliceCount: 1}, partitionTypeAttribute: d.example.com/profile, devices: [{name: d}]}`, "partitionTypeAttribute"},
		{"leases", `spec: {strategy: OldestEmulationVersion, preferredHolder: a}`, "preferredHolder strategy"},
		{"persistentvolumeclaims", `spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, dataSourceRef: {apiGroup: a.b, kind: K, name: n, namespace: other}}`,
			"apiGroup dataSourceRef kind name namespace"},
	} {
		r := kindOf(t, c.plural)
		given := keys(t, object(t, r, c.obj))
		create := func(features *feature.Set) []string {
			obj := object(t, r, c.obj)
			if errs := resourcetest.BeforeCreate(r, &resource.RequestContext{Now: noon, Namespace: "default", Features: features}, obj); len(errs) > 0 {
				t.Errorf("%s: %v", c.obj, errs)
			}
			return lost(given, keys(t, obj))
		}
		if got := strings.Join(create(nil), " "); got != c.lost {
			t.Errorf("%s: %q is lost, want %q", c.plural, got, c.lost)
		}
		if got := create(everything(t)); len(got) > 0 {
			t.Errorf("%s: with the features on, %v is lost", c.plural, got)
		}
		stored, again := object(t, r, c.obj), object(t, r, c.obj)
		resourcetest.BeforeCreate(r, &resource.RequestContext{Now: noon, Namespace: "default", Features: everything(t)}, stored)
		before := keys(t, stored)
		r.Strategy.PrepareForUpdate(&resource.RequestContext{Now: noon, Namespace: "default"}, again, stored)
		for _, name := range strings.Fields(c.lost) {
			if slices.Contains(lost(before, keys(t, again)), name) {
				t.Errorf("%s: an update loses %s, which was stored", c.plural, name)
			}
		}
	}
}

// keys returns the names of all fields below spec, with repetitions.
func keys(t *testing.T, obj resource.Object) []string {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var content map[string]any
	if err := json.Unmarshal(data, &content); err != nil {
		t.Fatal(err)
	}
	var names []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, value := range v {
				names = append(names, name)
				walk(value)
			}
		case []any:
			for _, item := range v {
				walk(item)
			}
		}
	}
	walk(content["spec"])
	slices.Sort(names)
	return names
}

// lost returns the names in a that occur less often in b.
func lost(a, b []string) []string {
	var gone []string
	rest := slices.Clone(b)
	for _, name := range a {
		if i := slices.Index(rest, name); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
			continue
		}
		gone = append(gone, name)
	}
	return gone
}

// TestTemplateDepth checks the maximum depth of a tree of templates.
func TestTemplateDepth(t *testing.T) {
	tree := `{name: l0, schedulingPolicy: {basic: {}}, ` + groups + `}`
	for level, want := range []bool{true, true, true, false} {
		r := kindOf(t, "workloads")
		errs := resourcetest.BeforeCreate(r, &resource.RequestContext{Now: noon, Namespace: "default", Features: everything(t)}, object(t, r, `spec: {compositePodGroupTemplates: [`+tree+`]}`))
		if (len(errs) == 0) != want {
			t.Errorf("%d levels: %v", level+1, errs)
		}
		tree = strings.NewReplacer("%", string(rune('a'+level))).Replace(`{name: l%, schedulingPolicy: {basic: {}}, compositePodGroupTemplates: [`) + tree + `]}`
	}
}
