package core_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

func newNode(t *testing.T, fields string) *corev1.Node {
	t.Helper()
	node := core.Nodes().Hub().New().(*corev1.Node)
	if err := yaml.Unmarshal([]byte(fields), node); err != nil {
		t.Fatal(err)
	}
	node.Name = "n"
	core.Nodes().Hub().Default(node)
	return node
}

// TestNodeRules checks that the status of a node is validated on create, too.
func TestNodeRules(t *testing.T) {
	const form = "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
	for name, test := range map[string]struct{ node, want string }{
		"good": {node: `{status: {declaredFeatures: [A, A/b, B1/c/D], nodeInfo: {swap: {capacity: 1}}}}`},
		"no swap": {
			node: `{status: {nodeInfo: {swap: {capacity: 0}}}}`,
			want: `metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than zero`,
		},
		"taints of an annotation": {
			node: `{metadata: {annotations: {scheduler.alpha.kubernetes.io/taints: '[{"key": "a", "effect": "NoSchedule"}, {"key": "b"}]'}}}`,
			want: `metadata.annotations.scheduler.alpha.kubernetes.io/taints[1].effect: Required value`,
		},
		"no taints in the annotation": {
			node: `{metadata: {annotations: {scheduler.alpha.kubernetes.io/taints: '['}}}`,
			want: `metadata.annotations: Invalid value: "scheduler.alpha.kubernetes.io/taints": unexpected end of JSON input`,
		},
		"features out of order": {
			node: `{status: {declaredFeatures: [B, A, A]}}`,
			want: `status.declaredFeatures[1]: Invalid value: "A": list must be sorted alphabetically
status.declaredFeatures[2]: Duplicate value: "A"`,
		},
		"features without names": {
			node: `{status: {declaredFeatures: ["", A/, a b]}}`,
			want: `status.declaredFeatures[0]: Invalid value: "": invalid feature name "": ` + form + `
status.declaredFeatures[1]: Invalid value: "A/": invalid feature name "A/": ` + form + `
status.declaredFeatures[2]: Invalid value: "a b": invalid feature name "a b": ` + form,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, err := range resourcetest.BeforeCreate(core.Nodes(), &resource.RequestContext{Now: noon}, newNode(t, test.node)) {
				got = append(got, err.Error())
			}
			if got := strings.Join(got, "\n"); got != test.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, test.want)
			}
		})
	}
}

// TestNodeConfigSource checks that spec.configSource, which was removed, is
// dropped unless the stored node has it.
func TestNodeConfigSource(t *testing.T) {
	const source = `{spec: {configSource: {configMap: {name: c, namespace: n, kubeletConfigKey: k}}}}`
	req := &resource.RequestContext{Now: noon}
	node := newNode(t, source)
	if errs := resourcetest.BeforeCreate(core.Nodes(), req, node); len(errs) > 0 || node.Spec.ConfigSource != nil { //nolint:staticcheck // under test
		t.Errorf("created with %v, errors %v", node.Spec.ConfigSource, errs) //nolint:staticcheck // under test
	}
	update := func(old string) *corev1.Node {
		was, is := newNode(t, old), newNode(t, source)
		was.UID, was.ResourceVersion = "u", "1"
		is.UID, is.ResourceVersion = was.UID, was.ResourceVersion
		if errs := resourcetest.BeforeUpdate(core.Nodes(), req, is, was); len(errs) > 0 {
			t.Error(errs)
		}
		return is
	}
	if update(`{}`).Spec.ConfigSource != nil { //nolint:staticcheck // under test
		t.Error("an update brought a source")
	}
	if update(source).Spec.ConfigSource == nil { //nolint:staticcheck // under test
		t.Error("an update took the source away")
	}
}

// TestNodeInUserNamespace checks that a status whose feature is off says nothing of
// user namespaces, unless the stored node does.
func TestNodeInUserNamespace(t *testing.T) {
	off, err := feature.Parse([]string{"KubeletInUserNamespace=false"})
	if err != nil {
		t.Fatal(err)
	}
	const says = `{status: {nodeInfo: {runningInUserNamespace: false}}}`
	for _, c := range []struct {
		features *feature.Set
		old      string
		kept     bool
	}{{nil, `{}`, true}, {off, `{}`, false}, {off, says, true}} {
		was, is := newNode(t, c.old), newNode(t, says)
		was.UID, was.ResourceVersion = "u", "1"
		is.UID, is.ResourceVersion = was.UID, was.ResourceVersion
		request := &resource.RequestContext{Now: noon, Features: c.features}
		if errs := resourcetest.BeforeSubresourceUpdate(core.Nodes(), core.Nodes().Subresource("status"), request, is, was); len(errs) > 0 {
			t.Error(errs)
		}
		if got := is.Status.NodeInfo.RunningInUserNamespace != nil; got != c.kept {
			t.Errorf("%+v: kept %t", c, got)
		}
	}
}
