package core_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// FuzzRules looks for objects on which the rules of a kind panic when they are
// decoded, defaulted, validated, updated to themselves and printed.
func FuzzRules(f *testing.F) {
	resources := core.Resources()
	answers, err := resourcetest.Answers("create")
	if err != nil {
		f.Fatal(err)
	}
	for kind, r := range resources {
		for n, a := range answers {
			if a.Kind == "v1 "+r.Kind && n%20 == 0 {
				f.Add(kind, []byte(a.Request))
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind int, body []byte) {
		r := resources[uint(kind)%uint(len(resources))]
		for i := range r.Versions {
			exercise(r, &r.Versions[i], body)
		}
	})
}

func exercise(r *resource.Resource, v *resource.Version, body []byte) {
	obj := v.New()
	if json.Unmarshal(body, obj) != nil {
		return
	}
	v.Default(obj)
	hub := v.ToHub(obj)
	old := hub.DeepCopyObject().(resource.Object)
	request := &resource.RequestContext{Now: time.Unix(0, 0), Namespace: "default", GroupVersion: v.GroupVersion}
	resourcetest.BeforeCreate(r, request, hub)
	resourcetest.BeforeUpdate(r, request, hub.DeepCopyObject().(resource.Object), old)
	resourcetest.BeforeUpdate(r, request, r.Hub().New(), old)
	for i := range r.Subresources {
		if s := &r.Subresources[i]; s.PrepareForUpdate != nil {
			resourcetest.BeforeSubresourceUpdate(r, s, request, hub.DeepCopyObject().(resource.Object), old)
		}
	}
	r.Strategy.Warnings(request, hub, nil)
	r.Strategy.Warnings(request, hub, old)
	r.Table.Row(hub, request.Now)
	r.FieldSelectors.SelectableFields(hub)
	v.FromHub(hub)
}
