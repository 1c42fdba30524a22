package bootstrap

import (
	"context"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/resource"
)

// KeepFlowControl puts the default flow schemas and priority levels back every
// minute, by upstream's rules of the maintenance of mandatory and suggested
// configuration objects, until ctx ends. What could not be written is tried
// again the next time.
//
//	missing                             made, mandatory or suggested
//	mandatory                           as it must be
//	suggested, autoupdate-spec "true"   as it is suggested
//	suggested, autoupdate-spec "false"  left to the users
//	suggested, without either           "true" if nobody has changed it since it was made, "false" if somebody has
//	others, autoupdate-spec "true"      deleted: they were suggested by another release
func KeepFlowControl(ctx context.Context, source objects.Source, w Writer) error {
	return keep(ctx, "flow schemas and priority levels", func() error {
		if err := ensure(ctx, source, w, flowControl()); err != nil {
			return err
		}
		return removeUnknown(ctx, source, w)
	})
}

// removeUnknown deletes what servers keep up to date but this one does not know.
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

// reconcileFlowControl returns what a flow schema or priority level must
// become, nil if it is good as it is.
func reconcileFlowControl(have, want resource.Object) resource.Object {
	next := have.DeepCopyObject().(resource.Object)
	name := have.GetName()
	mandatory := name == flowcontrolv1.FlowSchemaNameExempt || name == flowcontrolv1.FlowSchemaNameCatchAll
	ours, said := controlled(have)
	ours = ours || mandatory
	changed := false
	if !said || mandatory && have.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey] != "true" {
		merged, _ := merge(have.GetAnnotations(), map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: strconv.FormatBool(ours)})
		next.SetAnnotations(merged)
		changed = true
	}
	if ours {
		changed = setFlowSpec(next, want) || changed
	}
	return ifChanged(next, changed)
}

// controlled says whether the servers control the spec, and whether an
// annotation says so.
func controlled(have resource.Object) (ours, said bool) {
	switch have.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey] {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return have.GetGeneration() == 1, false
}

// setFlowSpec gives an object the wanted spec, if it has another.
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
