package celamount

import (
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/mutation"

	"github.com/coracle-io/coracle/internal/costtest"
)

// patchEnvironment returns the environment of expressions that return JSON
// patches.
func patchEnvironment(t *testing.T) *cel.Env {
	t.Helper()
	Bound()
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{common.ResolverEnvOption(&mutation.DynamicTypeResolver{}), cel.Variable("object", cel.DynType)},
	})
	if err != nil {
		t.Fatal(err)
	}
	env, err := set.Env(environment.StoredExpressions)
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// TestBoundQuantitiesInPatches checks that neither a value nor a copy within the
// object brings a quantity out of range into it.
func TestBoundQuantitiesInPatches(t *testing.T) {
	env := patchEnvironment(t)
	object := map[string]any{
		"metadata": map[string]any{
			"name":        "p",
			"annotations": map[string]any{"cpu": "1e900000000", "a/b": "1e-900000000", "commit": "3e48219b", "long": strings.Repeat("text ", 200)},
		},
		"spec": map[string]any{
			"nodeName":   "n",
			"containers": []any{map[string]any{"name": "a", "args": []any{"1e900000000"}}, map[string]any{"name": "b", "image": "i"}},
			"overhead":   map[string]any{"cpu": "100m", "memory": int64(5)},
		},
	}
	for expression, refused := range map[string]bool{
		`JSONPatch{op: "add", path: "/spec/overhead/cpu", value: "1e" + "900000000"}`:                                            true,
		`JSONPatch{op: "add", path: "/spec/overhead/cpu", value: object.metadata.annotations.cpu}`:                               true,
		`JSONPatch{op: "add", path: "/spec", value: Object.spec{overhead: Object.spec.overhead{cpu: "-1e900000000"}}}`:           true,
		`JSONPatch{op: "add", path: "/spec/overhead", value: {"cpu": object.metadata.annotations["a/b"]}}`:                       true,
		`JSONPatch{op: "add", path: "/spec/containers/-", value: {"name": dyn("c"), "limits": dyn([{"cpu": " 1e900000000 "}])}}`: true,
		`JSONPatch{op: "add", path: "/spec/overhead/cpu", value: 1e300}`:                                                         true,
		`JSONPatch{op: "add", path: "/spec/overhead/cpu", value: "` + strings.Repeat("9", 300) + `"}`:                            true,
		`JSONPatch{op: "copy", from: "/metadata/annotations/cpu", path: "/spec/overhead/cpu"}`:                                   true,
		`JSONPatch{op: "move", from: "/metadata/annotations/a~1b", path: "/spec/overhead/cpu"}`:                                  true,
		`JSONPatch{op: "move", from: "/metadata/annotations", path: "/spec/overhead"}`:                                           true,
		`JSONPatch{op: "copy", from: "/spec/containers/1/args/0", path: "/spec/overhead/cpu"}`:                                   true,
		`JSONPatch{op: "copy", from: "any/metadata/annotations/cpu", path: "/spec/overhead/cpu"}`:                                true,
		`JSONPatch{op: "copy", from: "/spec/overhead/cpu", path: "/spec/overhead/memory"}`:                                       false,
		`JSONPatch{op: "copy", from: "/metadata/annotations/commit", path: "/metadata/labels/commit"}`:                           false,
		`JSONPatch{op: "copy", from: "/metadata/labels/new", path: "/spec/overhead/cpu"}`:                                        false,
		`JSONPatch{op: "add", path: "/spec/overhead", value: {"cpu": dyn("100m"), "memory": dyn(1000000000)}}`:                   false,
		`JSONPatch{op: "add", path: "/metadata/annotations/copy", value: object.metadata.annotations.long}`:                      false,
		`JSONPatch{op: "remove", path: "/metadata/annotations/cpu"}`:                                                             false,
		`JSONPatch{op: "add", path: "/spec/containers", value: object.spec.containers.map(c, {"name": c.name})}`:                 false,
		`JSONPatch{op: "add", path: "/spec/containers", value: object.spec.containers.map(c, {"args": dyn(["1e201"])})}`:         true,
	} {
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			t.Errorf("%s: %v", expression, issues.Err())
			continue
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		value, _, err := program.Eval(map[string]any{"object": object})
		if refused && (err == nil || !strings.Contains(err.Error(), "out of range")) || !refused && (err != nil || value.Type().TypeName() != patchType) {
			t.Errorf("%.120s is %v, %v", expression, value, err)
		}
	}
	ast, issues := env.Compile(`JSONPatch{op: "copy", from: "/metadata/name", path: "/spec/nodeName"}`)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := program.Eval(map[string]any{"object": nil}); err == nil || !strings.Contains(err.Error(), "does not have") {
		t.Errorf("without an object: %v", err)
	}
}

// TestSourcesInObjectsOfGoTypes checks copies within an object that is a value of its
// Go type, and that one of a short text does not cost what the whole object costs.
func TestSourcesInObjectsOfGoTypes(t *testing.T) {
	large := strings.Repeat("text ", 1<<17)
	object := common.SchemalessTypedToVal(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{"cpu": "1e900000000", "a/b": "1", "large": large}},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "a"}, {Name: "b", Args: []string{"1e-900000000"}}}},
	})
	for pointer, refused := range map[string]bool{
		"/metadata/annotations/cpu":   true,
		"/metadata/annotations":       true,
		"/spec":                       true,
		"/spec/containers/0":          true,
		"/metadata/annotations/a~1b":  false,
		"/metadata/annotations/large": false,
		"/metadata/labels/app":        false,
		"/metadata/name":              false,
		"/spec/nodeName/x":            false,
	} {
		if err := checkSource(object, pointer); (err != nil) != refused {
			t.Errorf("%s: %v", pointer, err)
		}
	}
	if c := costtest.Of(t, func() { _ = checkSource(object, "/metadata/name") }); c.Bytes >= uint64(len(large)) {
		t.Errorf("a copy of the name costs %d bytes", c.Bytes)
	}
}
