package codec

import (
	"reflect"

	"github.com/go-json-experiment/json"
	"k8s.io/apimachinery/pkg/runtime"
)

// faultless are the rules of a decoder that takes no unknown and no duplicate
// fields, no field in another case, no wrong type and no invalid UTF-8.
var faultless = json.JoinOptions(json.RejectUnknownMembers(true))

// decodeFaultless reads JSON into obj, which is new, if nothing at all is wrong
// with it. Where it returns true, obj is what sigs.k8s.io/json would have made
// of the same body, which takes twice as long, and there is nothing to be said
// of the body; else obj is as it was before, and sigs.k8s.io/json, whose
// words clients know, has to find out what is wrong.
func decodeFaultless(obj runtime.Object, body []byte) bool {
	kind := obj.GetObjectKind().GroupVersionKind()
	if json.Unmarshal(body, obj, faultless) == nil {
		// A null takes away the kind that was there, which it must not.
		if now := obj.GetObjectKind().GroupVersionKind(); now.Kind != "" && now.Version != "" || now == kind {
			return true
		}
	}
	reflect.ValueOf(obj).Elem().SetZero()
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return false
}
