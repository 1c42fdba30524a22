package all_test

import (
	"fmt"
	"math"
	"math/rand"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/randfill"

	"github.com/coracle-io/coracle/internal/quota"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
	"github.com/coracle-io/coracle/internal/resource/runtimeconfig"
)

// filler fills objects with unusual values of the right types.
func filler(seed int64) *randfill.Filler {
	texts := []string{"", "x", "a/b", "-1", "1Ki", "100%", "10.0.0.1", "::/0", "Always", "TCP", "v1", "Deployment", "apps", "*", "\xff", "http", "True", "kubernetes.io/x", "0.0.0.0/0", "2006-01-02T15:04:05Z"}
	numbers := []int64{0, 1, -1, 2, 80, 65536, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64}
	return randfill.NewWithSeed(seed).NilChance([]float64{0.1, 0.4, 0.8}[seed%3]).NumElements(0, 3).MaxDepth(12).Funcs(
		func(s *string, c randfill.Continue) { *s = texts[c.Intn(len(texts))] },
		func(n *int32, c randfill.Continue) { *n = int32(numbers[c.Intn(len(numbers))]) },
		func(n *int64, c randfill.Continue) { *n = numbers[c.Intn(len(numbers))] },
		func(q *apiresource.Quantity, c randfill.Continue) {
			*q = apiresource.MustParse([]string{"0", "1", "-1", "1m", "1Ei", "9223372036854775807", "1e30", "0.0001"}[c.Intn(8)])
		},
		func(v *intstr.IntOrString, c randfill.Continue) {
			*v = intstr.Parse([]string{"0", "-1", "2147483647", "x", "50%", "-1%", ""}[c.Intn(7)])
		},
		func(t *metav1.Time, c randfill.Continue) {
			*t = metav1.NewTime([]time.Time{{}, time.Unix(0, 0), time.Unix(1<<40, 0), time.Unix(-1<<40, 0)}[c.Intn(4)])
		},
		func(t *metav1.MicroTime, c randfill.Continue) {
			*t = metav1.NewMicroTime(time.Unix(c.Int63n(1<<40), 0))
		},
		func(d *metav1.Duration, c randfill.Continue) {
			d.Duration = time.Duration(numbers[c.Intn(len(numbers))])
		},
		func(f *metav1.FieldsV1, _ randfill.Continue) { *f = metav1.FieldsV1{} },
		func(r *runtime.RawExtension, c randfill.Continue) {
			r.Raw = [][]byte{nil, []byte("null"), []byte("{}"), []byte("[")}[c.Intn(4)]
		},
		func(j *apiextensionsv1.JSON, c randfill.Continue) {
			j.Raw = [][]byte{nil, []byte("null"), []byte(`{"a":1}`), []byte("[")}[c.Intn(4)]
		},
		func(p *apiextensionsv1.JSONSchemaProps, c randfill.Continue) { // the type contains itself
			p.Type = texts[c.Intn(len(texts))]
			c.Fill(&p.Default)
			c.Fill(&p.Required)
			c.Fill(&p.XListMapKeys)
			c.Fill(&p.XPreserveUnknownFields)
			if c.Intn(3) == 0 {
				p.Properties = map[string]apiextensionsv1.JSONSchemaProps{"a": {Type: "object"}, "status": {}}
			}
			if c.Intn(3) == 0 {
				p.Items = &apiextensionsv1.JSONSchemaPropsOrArray{}
			}
			if c.Intn(3) == 0 {
				p.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{}
			}
		},
	)
}

// trial calls all functions of a kind with random objects.
type trial struct {
	*testing.T
	resource *resource.Resource
	seed     int64
	now      time.Time
	failed   bool
}

// step calls f and reports its panic, if any.
func (t *trial) step(what string, f func()) {
	defer func() {
		if reason := recover(); reason != nil && !t.failed {
			t.failed = true // one panic per kind is enough
			t.Errorf("%s %s, seed %d: %v\n%s", t.resource.Plural, what, t.seed, reason, debug.Stack())
		}
	}()
	f()
}

func (t *trial) run() {
	r := t.resource
	request := &resource.RequestContext{Now: t.now, Namespace: "default", User: &user.DefaultInfo{Name: "u"}, NamespaceLabels: func() map[string]string { return nil }}
	var former resource.Object
	for i := range r.Versions {
		v := &r.Versions[i]
		request.GroupVersion = v.GroupVersion
		obj := v.New()
		filler(t.seed).Fill(obj)
		obj.GetObjectKind().SetGroupVersionKind(v.WithKind(r.Kind))
		var hub resource.Object
		t.step("Default", func() { v.Default(obj) })
		t.step("ToHub", func() { hub = v.ToHub(obj) })
		if hub == nil {
			continue
		}
		t.rules(request, hub, former)
		t.shown(hub)
		former = hub
		stored, err := resource.EncodeStored(r, hub)
		if err != nil {
			continue // such as invalid UTF-8
		}
		t.step("DecodeStored", func() {
			if _, err := resource.DecodeStored(r, stored, 1); err != nil {
				t.Logf("%s is hidden when stored: %v", r.Plural, err)
			}
		})
	}
}

// rules applies the rules for creates and updates. former may be nil.
func (t *trial) rules(request *resource.RequestContext, hub, former resource.Object) {
	r := t.resource
	fresh := func() resource.Object { return hub.DeepCopyObject().(resource.Object) }
	t.step("BeforeCreate", func() { resourcetest.BeforeCreate(r, request, fresh()) })
	t.step("Warnings", func() { r.Strategy.Warnings(request, fresh(), nil) })
	empty := r.Hub().New()
	for what, old := range map[string]resource.Object{"itself": hub, "nothing in it": empty, "another": former} {
		if old == nil {
			continue
		}
		t.step("BeforeUpdate of "+what, func() { resourcetest.BeforeUpdate(r, request, fresh(), old) })
		t.step("BeforeUpdate to "+what, func() { resourcetest.BeforeUpdate(r, request, old.DeepCopyObject().(resource.Object), fresh()) })
		t.step("Warnings of "+what, func() { r.Strategy.Warnings(request, fresh(), old) })
		for i := range r.Subresources {
			if s := &r.Subresources[i]; s.PrepareForUpdate != nil {
				t.step(s.Name+" of "+what, func() { resourcetest.BeforeSubresourceUpdate(r, s, request, fresh(), old) })
				t.step(s.Name+" to "+what, func() {
					resourcetest.BeforeSubresourceUpdate(r, s, request, old.DeepCopyObject().(resource.Object), fresh())
				})
			}
		}
	}
}

// shown renders an object in all output forms.
func (t *trial) shown(hub resource.Object) {
	r := t.resource
	t.step("Row", func() { r.Table.Row(hub, t.now) })
	t.step("SelectableFields", func() { r.FieldSelectors.SelectableFields(hub) })
	for _, f := range r.FieldSelectors.Fields {
		t.step("Field", func() { r.Field(hub, f) })
	}
	if r.DeleteStrategy.GracePeriod != nil {
		t.step("GracePeriod", func() { r.DeleteStrategy.GracePeriod(hub, &metav1.DeleteOptions{}) })
	}
	t.step("quota.Usage", func() { quota.Usage(r.GroupResource(), hub, t.now, quota.Lookup{}) })
	for i := range r.Versions {
		t.step("FromHub", func() { r.Versions[i].FromHub(hub) })
	}
	for i := range r.Subresources {
		if s := r.Subresources[i].Scale; s != nil {
			t.step("Scale", func() {
				s.Selector(hub)
				s.SpecReplicas(hub)
				s.StatusReplicas(hub)
				s.SetReplicas(hub.DeepCopyObject().(resource.Object), -1)
			})
		}
	}
}

// TestRandomObjectsOfEveryKind checks that no function of a kind panics,
// whatever the object contains. The environment variable RANDOM_OBJECTS sets
// the number of objects per version.
func TestRandomObjectsOfEveryKind(t *testing.T) {
	count := 15
	if text := os.Getenv("RANDOM_OBJECTS"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	resources, err := runtimeconfig.Serve(all.All(), []string{"api/all=true"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := rand.Int63n(1 << 40)
	for _, r := range resources {
		if r.Virtual() {
			continue
		}
		t.Run(fmt.Sprintf("%s.%s", r.Plural, r.Group), func(t *testing.T) {
			trial := &trial{T: t, resource: r, now: time.Unix(1_800_000_000, 0)}
			for i := range count {
				trial.seed = first + int64(i)
				trial.run()
			}
		})
	}
}
