package runtimeconfig

import (
	"encoding/json"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/coracle-io/coracle/internal/resource"
)

// sameLayout returns a version whose type V has the memory layout of the hub's
// type H. A test checks the layout for every use.
func sameLayout[V, H any, P resource.ObjectPointer[V], HP resource.ObjectPointer[H]](r *resource.Resource, gv schema.GroupVersion) resource.Version {
	return other(r, gv,
		func(obj P) HP { return HP((*H)(unsafe.Pointer((*V)(obj)))) },
		func(obj HP) P { return P((*V)(unsafe.Pointer((*H)(obj)))) },
	)
}

// convertedJSON returns a version whose JSON differs from the hub's below a
// path. up changes the JSON there to the hub's form, and down to the
// version's. If an object cannot be encoded as JSON, only its metadata is
// converted, so that it fails validation.
func convertedJSON[V, H any, P resource.ObjectPointer[V], HP resource.ObjectPointer[H]](up, down func(map[string]any), path ...string) func(*resource.Resource, schema.GroupVersion) resource.Version {
	return func(r *resource.Resource, gv schema.GroupVersion) resource.Version {
		return other(r, gv,
			func(obj P) HP {
				to := HP(new(H))
				translate(obj, to, up, path)
				return to
			},
			func(obj HP) P {
				to := P(new(V))
				translate(obj, to, down, path)
				return to
			},
		)
	}
}

func other[V, H any, P resource.ObjectPointer[V], HP resource.ObjectPointer[H]](r *resource.Resource, gv schema.GroupVersion, toHub func(P) HP, fromHub func(HP) P) resource.Version {
	hub := r.Hub()
	return resource.OtherVersion(gv.WithKind(r.Kind), hub.WithKind(r.Kind), nil,
		func(obj P) HP {
			converted := toHub(obj)
			hub.Default(converted)
			return converted
		}, fromHub)
}

func translate(from, to resource.Object, change func(map[string]any), path []string) {
	var content map[string]any
	data, err := json.Marshal(from)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, &content)
	}
	if err == nil {
		changeAt(content, change, path)
		data, err = json.Marshal(content)
	}
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		to.SetName(from.GetName())
		to.SetNamespace(from.GetNamespace())
		to.SetResourceVersion(from.GetResourceVersion())
		to.SetUID(from.GetUID())
	}
}

func changeAt(content map[string]any, change func(map[string]any), path []string) {
	for _, name := range path {
		next, ok := content[name].(map[string]any)
		if !ok {
			return
		}
		content = next
	}
	change(content)
}

// eachIn calls visit for each object of the list at a path.
func eachIn(content map[string]any, visit func(map[string]any), path ...string) {
	for _, name := range path[:len(path)-1] {
		content, _ = content[name].(map[string]any)
	}
	list, _ := content[path[len(path)-1]].([]any)
	for _, item := range list {
		if object, ok := item.(map[string]any); ok {
			visit(object)
		}
	}
}

// unchanged is for a version with fields that the hub lacks:
// PodCertificateRequest v1beta1 can have the public key and its proof of
// possession besides the PKCS #10 request, which contains both.
func unchanged(map[string]any) {}

// exactFields are the fields of a device request that v1 has below
// "exactly".
func exactFields() []string {
	return []string{"deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity", "derivedAttributes"}
}

// nestRequests moves the fields of a v1beta1 device request below
// "exactly".
func nestRequests(spec map[string]any) {
	eachIn(spec, func(request map[string]any) {
		if _, choice := request["firstAvailable"]; choice {
			return
		}
		nested := map[string]any{}
		for _, name := range exactFields() {
			move(request, nested, name)
		}
		request["exactly"] = nested
	}, "devices", "requests")
}

func flattenRequests(spec map[string]any) {
	eachIn(spec, func(request map[string]any) {
		nested, _ := request["exactly"].(map[string]any)
		delete(request, "exactly")
		for name := range nested {
			move(nested, request, name)
		}
	}, "devices", "requests")
}

// flattenDevices moves the fields below "basic" of a v1beta1 device up to the
// device.
func flattenDevices(spec map[string]any) {
	eachIn(spec, func(device map[string]any) {
		nested, _ := device["basic"].(map[string]any)
		delete(device, "basic")
		for name := range nested {
			move(nested, device, name)
		}
	}, "devices")
}

func nestDevices(spec map[string]any) {
	eachIn(spec, func(device map[string]any) {
		nested := map[string]any{}
		for name := range device {
			if name != "name" {
				move(device, nested, name)
			}
		}
		device["basic"] = nested
	}, "devices")
}

func move(from, to map[string]any, name string) {
	if value, ok := from[name]; ok {
		to[name] = value
		delete(from, name)
	}
}
