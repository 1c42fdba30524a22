package all_test

import (
	"encoding/json"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
)

// FuzzUpdates looks for two objects of a kind on which its rules panic when
// one replaces the other or its status.
func FuzzUpdates(f *testing.F) {
	resources := all.All()
	answers, err := resourcetest.Answers("create")
	if err != nil {
		f.Fatal(err)
	}
	for kind, r := range resources {
		valid := []byte("{}")
		for n, a := range answers {
			gvk := schema.FromAPIVersionAndKind(r.Hub().GroupVersion.String(), r.Kind)
			if a.Kind != gvk.GroupVersion().String()+" "+gvk.Kind {
				continue
			}
			if a.Case == "as is" {
				valid = a.Request
			}
			if n%10 == 0 {
				f.Add(kind, []byte(a.Request), valid)
				f.Add(kind, valid, []byte(a.Request))
			}
		}
	}
	request := &resource.RequestContext{Now: time.Unix(0, 0), Namespace: "default", User: &user.DefaultInfo{Name: "fuzz"}}
	f.Fuzz(func(t *testing.T, kind int, body, oldBody []byte) {
		r := resources[uint(kind)%uint(len(resources))]
		for i := range r.Versions {
			v := &r.Versions[i]
			obj, old := decoded(v, body), decoded(v, oldBody)
			if obj == nil || old == nil {
				continue
			}
			request.GroupVersion = v.GroupVersion
			resourcetest.BeforeCreate(r, request, clone(old))
			resourcetest.BeforeUpdate(r, request, clone(obj), old)
			for k := range r.Subresources {
				if s := &r.Subresources[k]; s.PrepareForUpdate != nil {
					resourcetest.BeforeSubresourceUpdate(r, s, request, clone(obj), old)
				}
			}
			r.Strategy.Warnings(request, obj, old)
			r.Table.Row(obj, request.Now)
			r.FieldSelectors.SelectableFields(obj)
			v.FromHub(obj)
		}
	})
}

func decoded(v *resource.Version, body []byte) resource.Object {
	obj := v.New()
	if json.Unmarshal(body, obj) != nil {
		return nil
	}
	v.Default(obj)
	return v.ToHub(obj)
}

func clone(obj resource.Object) resource.Object { return obj.DeepCopyObject().(resource.Object) }
