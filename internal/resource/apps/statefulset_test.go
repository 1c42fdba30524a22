package apps

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// storedSet returns a StatefulSet with a claim, as the server has it.
func storedSet(t *testing.T) *appsv1.StatefulSet {
	t.Helper()
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "default", UID: "u", ResourceVersion: "1", Generation: 1, CreationTimestamp: metav1.Unix(1_800_000_000, 0),
	}}
	const spec = `{serviceName: web, selector: {matchLabels: {app: a}},
	  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i, volumeMounts: [{name: data, mountPath: /d}]}]}},
	  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}`
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(spec, "\t", " ")), &s.Spec); err != nil {
		t.Fatal(err)
	}
	defaultStatefulSet(s)
	return s
}

func fieldsOf(errs field.ErrorList) (fields []string) {
	for _, err := range errs {
		fields = append(fields, err.Field)
	}
	return fields
}

// TestStatefulSetUpdates checks what can change in a StatefulSet, and that each other field
// has an error of its own.
func TestStatefulSetUpdates(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *appsv1.StatefulSet)
		want   []string
	}{
		"replicas": {change: func(s *appsv1.StatefulSet) { s.Spec.Replicas, s.Spec.MinReadySeconds = new(int32(3)), 7 }},
		"image":    {change: func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "j" }},
		"selector": {func(s *appsv1.StatefulSet) {
			s.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"a"}}}}
		}, []string{"spec.selector"}},
		"claims": {func(s *appsv1.StatefulSet) {
			s.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests[corev1.ResourceStorage] = apiresource.MustParse("-2Gi")
		}, []string{"spec.volumeClaimTemplates"}},
		"service": {func(s *appsv1.StatefulSet) { s.Spec.ServiceName = "No Name" }, []string{"spec.serviceName"}},
		"policy":  {func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = appsv1.ParallelPodManagement }, []string{"spec.podManagementPolicy"}},
		"some of all": {func(s *appsv1.StatefulSet) {
			s.Spec.Replicas, s.Spec.ServiceName, s.Spec.PodManagementPolicy = new(int32(-1)), "other", appsv1.ParallelPodManagement
		}, []string{"spec.replicas", "spec.serviceName", "spec.podManagementPolicy"}},
	} {
		old, next := storedSet(t), storedSet(t)
		test.change(next)
		errs := resourcetest.BeforeUpdate(StatefulSets(), &resource.RequestContext{Namespace: "default"}, next, old)
		if got := fieldsOf(errs); !slices.Equal(got, test.want) {
			t.Errorf("%s: errors of %q, want %q: %v", name, got, test.want, errs)
		}
	}
}

// TestStoredTemplate checks that the template of a StatefulSet of an older version, which
// accepted it, does not keep other fields from changing.
func TestStoredTemplate(t *testing.T) {
	scale := func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(3)) }
	noImage := func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "" }
	for name, test := range map[string]struct {
		stored, change func(s *appsv1.StatefulSet)
		want           []string
	}{
		"stored": {stored: noImage, change: func(s *appsv1.StatefulSet) { noImage(s); scale(s) }},
		"mended": {stored: noImage, change: scale},
		"new":    {func(*appsv1.StatefulSet) {}, noImage, []string{"spec.template.spec.containers[0].image"}},
		"one more": {noImage, func(s *appsv1.StatefulSet) {
			noImage(s)
			s.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		}, []string{"spec.template.spec.restartPolicy"}},
	} {
		old, next := storedSet(t), storedSet(t)
		test.stored(old)
		test.change(next)
		errs := resourcetest.BeforeUpdate(StatefulSets(), &resource.RequestContext{Namespace: "default"}, next, old)
		if got := fieldsOf(errs); !slices.Equal(got, test.want) {
			t.Errorf("%s: errors of %q, want %q: %v", name, got, test.want, errs)
		}
	}
}

// TestTemplateOfStatefulSet checks that the parts of a template that its pods do not get as
// they are are not validated.
func TestTemplateOfStatefulSet(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *corev1.PodSpec)
		want   []string
	}{
		"names":             {change: func(s *corev1.PodSpec) { s.Hostname, s.Subdomain = "No Name", "No Name" }},
		"volume of a claim": {change: func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{Name: "data"}, {Name: "data"}} }},
		"another volume": {func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "No Name", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}, []string{"spec.template.spec.volumes[1].name"}},
	} {
		s := storedSet(t)
		test.change(&s.Spec.Template.Spec)
		errs := StatefulSets().Strategy.Validate(&resource.RequestContext{Namespace: "default"}, s)
		if got := fieldsOf(errs); !slices.Equal(got, test.want) {
			t.Errorf("%s: errors of %q, want %q: %v", name, got, test.want, errs)
		}
	}
}

// TestRevisionData checks which data a ControllerRevision may have, and that null that
// older versions stored does not keep it from changing.
func TestRevisionData(t *testing.T) {
	for data, want := range map[string]string{
		`{"a":1}`: "",
		"":        `data: Required value: data is mandatory`,
		"null":    `data: Required value: data is mandatory`,
		`["a"]`:   `data: Required value: data must be a valid JSON object`,
		`{"a"`:    `data: Invalid value: "<value omitted>": error parsing data: unexpected end of JSON input`,
	} {
		r := &appsv1.ControllerRevision{}
		r.Data.Raw = []byte(data)
		got := ""
		if err := validateControllerRevision(nil, r).ToAggregate(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", data, got, want)
		}
	}
	old := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "default", ResourceVersion: "1"}}
	old.Data.Raw = []byte("null")
	next := old.DeepCopy()
	next.Labels = map[string]string{"a": "b"}
	if errs := resourcetest.BeforeUpdate(ControllerRevisions(), &resource.RequestContext{Namespace: "default"}, next, old); len(errs) > 0 {
		t.Errorf("an update of stored null: %v", errs)
	}
}
