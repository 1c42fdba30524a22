package podautoscaler

import (
	"context"
	"errors"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	autoscaling "k8s.io/api/autoscaling/v2"
)

// targets reads and writes the scale subresources of what autoscalers refer to.
type targets struct {
	mapper  meta.RESTMapper
	dynamic dynamic.Interface
}

// target is an object with its Scale.
type target struct {
	resource schema.GroupVersionResource
	scale    autoscalingv1.Scale
	whole    *unstructured.Unstructured // what the server sent, which is sent back
}

// errTarget says which step of finding a target failed.
type errTarget struct {
	step string
	error
}

func (e *errTarget) Unwrap() error { return e.error }

// get returns the target of a reference. It tries all versions of the kind.
func (t *targets) get(ctx context.Context, namespace string, ref autoscaling.CrossVersionObjectReference) (*target, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, &errTarget{"invalid API version in scale target reference", &errSpec{err}}
	}
	mappings, err := t.mapper.RESTMappings(schema.GroupKind{Group: gv.Group, Kind: ref.Kind})
	if err != nil {
		return nil, &errTarget{"unable to determine resource for scale target reference", err}
	}
	first := errors.New("unrecognized resource")
	for i, m := range mappings {
		found, err := t.of(ctx, m.Resource, namespace, ref.Name)
		if err == nil {
			return found, nil
		}
		if i == 0 {
			first = err
		}
	}
	return nil, &errTarget{fmt.Sprintf("failed to query scale subresource for %s/%s/%s", ref.Kind, namespace, ref.Name), first}
}

func (t *targets) of(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (*target, error) {
	whole, err := t.dynamic.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{}, "scale")
	if err != nil {
		return nil, err
	}
	found := &target{resource: resource, whole: whole}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(whole.Object, &found.scale); err != nil {
		return nil, fmt.Errorf("the scale of %s %s: %w", resource.Resource, name, err)
	}
	return found, nil
}

// set changes the number of replicas. If the target has changed meanwhile, set reads it again.
func (t *targets) set(ctx context.Context, of *target, replicas int32) error {
	scales, whole := t.dynamic.Resource(of.resource).Namespace(of.scale.Namespace), of.whole.DeepCopy()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := unstructured.SetNestedField(whole.Object, int64(replicas), "spec", "replicas"); err != nil {
			return err
		}
		_, err := scales.Update(ctx, whole, metav1.UpdateOptions{}, "scale")
		if apierrors.IsConflict(err) {
			if latest, failed := scales.Get(ctx, of.scale.Name, metav1.GetOptions{}, "scale"); failed == nil {
				whole = latest
			}
		}
		return err
	})
}
