package bootstrap

import (
	"context"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/resource"
)

// MaintainFlowControl restores the default flow schemas and priority levels
// every minute, until ctx ends. It follows upstream's rules for the maintenance
// of mandatory and suggested configuration objects. It retries failed writes
// the next time.
//
//	missing                             created
//	mandatory                           set to the default
//	suggested, autoupdate-spec "true"   set to the default
//	suggested, autoupdate-spec "false"  left to the users
//	suggested, without either           "true" if its spec never changed, else "false"
//	others, autoupdate-spec "true"      deleted: another release suggested them
func MaintainFlowControl(ctx context.Context, source objects.Source, w Writer) error {
	return maintain(ctx, "flow schemas and priority levels", func() error {
		if err := ensure(ctx, source, w, flowControl()); err != nil {
			return err
		}
		return removeUnknown(ctx, source, w)
	})
}

// removeUnknown deletes the objects that servers update and that this release
// does not have.
func removeUnknown(ctx context.Context, source objects.Source, w Writer) error {
	known := map[string]bool{}
	for _, want := range flowControl() {
		known[want.storagePath+"/"+want.obj.GetName()] = true
	}
	for _, path := range []string{objects.FlowSchemas, objects.PriorityLevels} {
		kind := source.Kind(path)
		if kind == nil {
			continue
		}
		for obj := range kind.All("") {
			if known[path+"/"+obj.GetName()] || obj.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey] != "true" {
				continue
			}
			if err := w.Delete(ctx, path, obj); err != nil {
				return wrap(err, "removing", wanted{path, obj})
			}
		}
	}
	return nil
}

// reconcileFlowControl returns the new state of a flow schema or priority
// level, or nil if it need not change.
func reconcileFlowControl(have, want resource.Object) resource.Object {
	next := have.DeepCopyObject().(resource.Object)
	name := have.GetName()
	mandatory := name == flowcontrolv1.FlowSchemaNameExempt || name == flowcontrolv1.FlowSchemaNameCatchAll
	ours, annotated := controlled(have)
	ours = ours || mandatory
	changed := false
	if !annotated || mandatory && have.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey] != "true" {
		merged, _ := merge(have.GetAnnotations(), map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: strconv.FormatBool(ours)})
		next.SetAnnotations(merged)
		changed = true
	}
	if ours {
		changed = setFlowSpec(next, want) || changed
	}
	return ifChanged(next, changed)
}

// controlled reports whether servers control the spec, and whether an
// annotation says so.
func controlled(have resource.Object) (ours, annotated bool) {
	switch have.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey] {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return have.GetGeneration() == 1, false
}

// setFlowSpec sets the spec of an object, and reports whether that changed it.
func setFlowSpec(next, want resource.Object) (changed bool) {
	switch next := next.(type) {
	case *flowcontrolv1.FlowSchema:
		spec := want.(*flowcontrolv1.FlowSchema).Spec
		changed = !equality.Semantic.DeepEqual(next.Spec, spec)
		next.Spec = spec
	case *flowcontrolv1.PriorityLevelConfiguration:
		spec := want.(*flowcontrolv1.PriorityLevelConfiguration).Spec
		changed = !equality.Semantic.DeepEqual(next.Spec, spec)
		next.Spec = spec
	}
	return changed
}
